"""Markdown for a terminal, laid out while it streams: printed text is never changed, and no character is lost.

A block, such as a paragraph or a list item, is laid out again with each new piece, and lines that no later text of it
can change are printed. A table is printed when it is complete, code and formulas line by line.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import pairwise
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement, TableElement
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

MAX_BLOCK_CHARS = 4_000
"""Longer blocks are split into several, because a block is laid out again with each piece of it."""
MAX_TABLE_CHARS = 20_000
"""A table is laid out once."""
MIN_GROWTH_CHARS = 16
"""A block is laid out again once it has grown by this much, or by a line."""
_ENDLESS_COLUMNS = 1_000_000
MAX_HELD_CHARS = 2_000
"""An unclosed mark this far before the end is treated as text."""
MIN_COLUMNS = 20
MAX_DEPTH = 18
"""Nesting depth of lists and quotations; a list is two levels. Deeper nesting is printed unformatted."""
COLUMNS_PER_LEVEL = 2
_CODE_THEME = "ansi_dark"
_STYLES = Theme({"markdown.code": "cyan", "markdown.code_block": "cyan", "markdown.h1": "bold underline"})
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}(?=[^`\n]*\n)|~{3,})[ \t]*(?P<language>[\w+#.-]*)[^\n]*\n")
_FORMULA = re.compile(r"^ {0,3}(?P<mark>\$\$|\\\[)[ \t]*\n", re.MULTILINE)
# Text between single dollar signs is either TeX or prices.
_INLINE_FORMULA = re.compile(
    r"\\\(.{0,2000}?\\\)|\\\[.{0,2000}?\\\]|\$\$.{0,2000}?\$\$|\\begin\{(\w+\*?)\}.{0,2000}?\\end\{\1\}"
    r"|\$(?=[^\s$][^$]{0,500}[\\^_{])[^$]{0,500}[^\s\\$]\$(?!\d)",
    re.DOTALL,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_CLOSED_BY_LINE = frozenset({"heading_open", "hr"})
_CLOSED_BY_BLANK = frozenset({"paragraph_open", "table_open", "blockquote_open"})
_LISTS = frozenset({"bullet_list_open", "ordered_list_open"})


def _keep_formula(state: StateInline, silent: bool) -> bool:
    """Keep formulas as text, whatever they contain, and a backslash before a character without meaning in Markdown."""
    found = _INLINE_FORMULA.match(state.src, state.pos, state.posMax)
    kept = found[0] if found else state.src[state.pos : state.pos + 2]
    if not found and not re.fullmatch(r"\\[()\[\]{},;:!%]", kept):
        return False
    if not silent:
        state.push("text", "", 0).content = kept
    state.pos += len(kept)
    return True


def _build_parser() -> MarkdownIt:
    # Without HTML no text is dropped as markup; without reference definitions no line of it disappears.
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("reference")
    parser.inline.ruler.before("escape", "formula", _keep_formula)
    return parser


_PARSER = _build_parser()


class _Heading(Heading):
    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _Table(TableElement):
    """A table that wraps words wider than their column, instead of cutting them off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class _Laid(Markdown):
    """Tokens parsed by this module's rules, laid out by rich."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "table_open": _Table,
    }

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", code_theme=_CODE_THEME, hyperlinks=False)
        self.parsed = tokens


@dataclass(frozen=True, slots=True)
class _Block:
    """A block that begins at line `line` of the parsed text. A list item is also one."""

    kind: str
    line: int


@dataclass(frozen=True, slots=True)
class _Literal:
    """Lines that are printed unchanged until `closing` matches one."""

    closing: re.Pattern[str]
    syntax: Syntax | None


class MarkdownWriter:
    """Lays out one text after the other, each given in pieces. `write` gets whole lines, with their colours."""

    def __init__(self, write: Callable[[str], None], *, find_columns: Callable[[], int], colour: bool) -> None:
        self._write = write
        self._find_columns = find_columns
        self._colour = colour
        self._source = ""
        """The text from the start of the incomplete block."""
        self._literal: _Literal | None = None
        self._shown: list[str] = []
        """Printed lines of that block."""
        self._settled = ""
        """The part of it that was last laid out."""
        self._columns = 0
        self._has_shown_any = False
        self._is_after_blank = False

    def begin(self) -> None:
        """Start a new text."""
        self.end()
        self._literal = None
        self._has_shown_any = False

    def feed(self, text: str) -> None:
        """Add the next piece."""
        self._source += text
        while self._advance():
            pass

    def end(self) -> None:
        """Print held back text: other output follows, or the text is complete. Open code stays open."""
        source, self._source = self._source, ""
        if self._literal:
            self._print_literal(source, self._literal)
        elif source.strip():
            self._print_whole(source)
        self._is_after_blank = False

    def _advance(self) -> bool:
        """Print what is final; returns whether there may be more."""
        if self._literal:
            return self._advance_literal(self._literal)
        blank = len(self._source) - len(self._source.lstrip("\n"))
        if blank and not self._shown:
            self._source, self._is_after_blank = self._source[blank:], True
        if not self._source.strip():
            return False
        formula = _FORMULA.search(self._source)
        if formula and formula.start() == 0:
            self._begin_literal(formula, _Literal(_closing_formula(formula["mark"]), None))
            return True
        fence = _FENCE.match(self._source)
        if fence:
            self._begin_literal(fence, _Literal(_closing_fence(fence["mark"]), self._try_syntax(fence["language"])))
            return True
        before_formula = formula.start() if formula and not _is_code(self._source[: formula.start()]) else None
        blocks = _split(self._source[:before_formula])
        if self._take_complete(blocks):
            return True
        if before_formula is not None:
            self._take(before_formula)
            return True
        kind = blocks[0].kind if blocks else ""
        if _is_closed(kind, self._source):
            self._take(len(self._source))
            return False
        is_table = kind == "table_open" or self._source.lstrip().startswith("|")
        max_chars = MAX_TABLE_CHARS if is_table else MAX_BLOCK_CHARS
        if len(self._source) > max_chars:
            self._take(_find_cut(self._source, max_chars))
            return True
        if not is_table:
            self._print_settled()
        return False

    def _take_complete(self, blocks: Sequence[_Block]) -> bool:
        """Print the blocks that are followed by others, up to code, which is printed line by line."""
        taken = 0
        lines = re.split(r"(?<=\n)", self._source)
        for block, following in pairwise(blocks):
            if block.kind == "fence" and taken:
                break
            size = sum(map(len, lines[taken : following.line]))
            taken = following.line
            self._take(size)
        return taken > 0

    def _take(self, end: int) -> None:
        """Print a complete block."""
        block, self._source = self._source[:end], self._source[end:]
        self._print_whole(block)
        self._is_after_blank = bool(re.search(r"\n[ \t]*\n\s*$", block))

    def _print_settled(self) -> None:
        """Print the lines that no later text of the block can change: all but the last of the part without open
        marks."""
        settled = _find_settled(self._source)
        if settled.count("\n") == self._settled.count("\n") and len(settled) < len(self._settled) + MIN_GROWTH_CHARS:
            return
        self._settled = settled
        lines = self._lay_out(settled)[:-1]
        if lines[: len(self._shown)] == self._shown:
            self._print_lines(lines[len(self._shown) :])
            self._shown = lines if len(lines) > len(self._shown) else self._shown

    def _print_whole(self, block: str) -> None:
        lines = self._lay_out(block)
        # If the end of a block changes the meaning of its beginning, all of it is printed again: duplicated, but
        # readable.
        known = len(self._shown) if lines[: len(self._shown)] == self._shown else 0
        self._print_lines(lines[known:])
        self._shown, self._settled = [], ""

    def _print_lines(self, lines: Sequence[str]) -> None:
        if not lines:
            return
        if not self._shown and self._is_after_blank and self._has_shown_any:
            self._write("\n")
        self._has_shown_any = True
        self._write("".join(f"{line}\n" for line in lines))

    def _begin_literal(self, opening: re.Match[str], literal: _Literal) -> None:
        self._source = self._source[opening.end() :]
        self._print_lines([self._style(opening[0].rstrip("\n"), "dim")])
        self._literal = literal

    def _advance_literal(self, literal: _Literal) -> bool:
        end = self._source.find("\n") + 1
        if not end:
            return False
        line, self._source = self._source[:end], self._source[end:]
        self._print_literal(line, literal)
        return True

    def _print_literal(self, line: str, literal: _Literal) -> None:
        if not line:
            return
        line = line.rstrip("\n")
        if literal.closing.fullmatch(line):
            self._literal = None
            self._write(f"{self._style(line, 'dim')}\n")
        elif literal.syntax and line.strip() and "\t" not in line:
            # Lines with tabs stay plain: the highlighter would replace tabs by blanks.
            coloured = literal.syntax.highlight(line)
            coloured.rstrip()
            self._write("".join(f"{each}\n" for each in self._render(coloured)))
        else:
            self._write(f"{line}\n")

    def _try_syntax(self, language: str) -> Syntax | None:
        return Syntax("", language, theme=_CODE_THEME) if language and self._colour else None

    def _style(self, text: str, style: str) -> str:
        return self._render(Text(text, style))[0] if text else ""

    def _lay_out(self, block: str) -> list[str]:
        """The lines of a block, for the terminal width when the block began."""
        if not self._shown:
            self._columns = max(MIN_COLUMNS, self._find_columns())
        tokens = _PARSER.parse(block)
        deepest = max((token.level for token in tokens), default=0)
        if deepest > MAX_DEPTH or COLUMNS_PER_LEVEL * deepest > self._columns - MIN_COLUMNS // 2:
            return block.strip("\n").split("\n")
        lines = self._render(_Laid(list(_adapt(tokens))), self._columns)
        shown = [at for at, line in enumerate(lines) if _COLOUR.sub("", line).strip()]
        return lines[shown[0] : shown[-1] + 1] if shown else []

    def _render(self, shown: Markdown | Text, columns: int = _ENDLESS_COLUMNS) -> list[str]:
        console = Console(
            file=StringIO(),
            force_terminal=True,
            color_system="standard" if self._colour else None,
            width=columns,
            theme=_STYLES,
            highlight=False,
            legacy_windows=False,
        )
        with console.capture() as captured:
            console.print(shown, end="" if isinstance(shown, Text) else "\n")
        return [_without_padding(line) for line in captured.get().split("\n")]


def _without_padding(line: str) -> str:
    """Strip rich's padding with blanks, which would be copied, and would wrap when the window gets narrower."""
    return "" if not _COLOUR.sub("", line).strip() else re.sub(r" +((?:\x1b\[0m)*)$", r"\1", line)


def _split(source: str) -> list[_Block]:
    """The blocks of a text, with list items instead of lists."""
    return list(_find_blocks(_PARSER.parse(source)))


def _find_blocks(tokens: Sequence[Token]) -> Iterator[_Block]:
    for token in tokens:
        is_item = token.level == 1 and token.type == "list_item_open"
        if token.map and (is_item or (token.level == 0 and token.type not in _LISTS)):
            yield _Block(token.type, token.map[0])


def _is_closed(kind: str, source: str) -> bool:
    """Whether no later text can belong to the block."""
    if kind in _CLOSED_BY_LINE:
        return source.endswith("\n")
    return kind in _CLOSED_BY_BLANK and bool(re.search(r"\n[ \t]*\n$", source))


def _is_code(source: str) -> bool:
    """Whether the text ends in unclosed code."""
    is_open = False
    mark = ""
    for line in source.split("\n"):
        found = re.match(r"\s*(`{3,}|~{3,})", line)
        if found and not is_open:
            is_open, mark = True, found[1]
        elif found and is_open and found[1].startswith(mark) and line.strip() == found[1]:
            is_open = False
    return is_open


def _closing_fence(mark: str) -> re.Pattern[str]:
    return re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*")


def _closing_formula(mark: str) -> re.Pattern[str]:
    closing = "$$" if mark == "$$" else "\\]"
    return re.compile(rf"[ \t]*{re.escape(closing)}[ \t]*")


_MARKS = re.compile(r"`+|\\.|\$\$|[*_]+|~~|[\[\]<>]", re.DOTALL)
_CLOSING = {"\\(": "\\)", "\\[": "\\]", "$$": "$$", "<": ">"}


def _find_cut(source: str, max_chars: int) -> int:
    """The position after the last whole line or word within `max_chars`."""
    part = source[:max_chars]
    return (part.rfind("\n") + 1) or (part.rfind(" ") + 1) or max_chars


def _find_settled(source: str) -> str:
    """Whole words from the start of a text, without any mark that later text could close."""
    while True:
        settled = _cut_open_marks(source)
        settled = settled[: max(settled.rfind(" "), settled.rfind("\n")) + 1]
        if settled == source:
            return settled
        source = settled


def _cut_open_marks(source: str) -> str:
    """The start of a text up to the first mark, such as of emphasis, that later text could close."""
    opened: list[tuple[str, int]] = []
    at = 0
    while found := _MARKS.search(source, at):
        mark, start, at = found[0], found.start(), found.end()
        closing = _CLOSING.get(mark) or (mark if mark[0] == "`" else "")
        if closing:
            end = source.find(closing, at)
            if end < 0:
                opened.append((mark, start))
                break
            at = end + len(closing)
        elif mark == "[":
            opened.append((mark, start))
        elif mark == "]":
            begin = start
            while opened:
                inner, begin = opened.pop()
                if inner == "[":
                    break
            # A URL may follow.
            if at == len(source) or source[at] == "(":
                end = source.find(")", at)
                if end < 0:
                    opened.append((mark, begin))
                    break
                at = end + 1
        elif mark[0] in "*_~":
            if opened and opened[-1][0] == mark:
                opened.pop()
            elif at == len(source) or not source[at].isspace():
                opened.append((mark, start))
    first = next((start for _, start in opened if len(source) - start <= MAX_HELD_CHARS), len(source))
    return source[:first]


def _adapt(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield replace(token, children=list(_adapt_inline(token.children))) if token.children else token


def _adapt_inline(children: Sequence[Token]) -> Iterator[Token]:
    """Convert HTML line breaks, show images with their URL, and show a URL that is its own text once.

    Parsing Markdown decodes entities and URLs, so escaped text can contain control characters again.
    """
    for at, child in enumerate(children):
        token = replace(child, content=make_inert(child.content))
        if token.type == "text" and _BREAK.search(token.content):
            for number, part in enumerate(_BREAK.split(token.content)):
                if number:
                    yield Token("hardbreak", "br", 0)
                yield Token("text", "", 0, content=part)
        elif token.type == "image":
            address = str(token.attrs.get("src", ""))
            yield Token("text", "", 0, content=f"{token.content} ({address})" if token.content else address)
        elif token.type in ("link_open", "link_close") and _is_autolink(children, at):
            continue
        else:
            yield token


def _is_autolink(children: Sequence[Token], at: int) -> bool:
    return children[at].markup == "autolink"


_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_UNSEEN_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Joiners and fillers that are invisible; the web page shows the same ones in approval questions."""


def make_inert(text: str) -> str:
    """Show as visible escapes: control characters other than newline and tab, line and paragraph separators,
    bidirectional controls, and tags. Joiners and marks that languages use stay."""
    return _ACTIVE.sub(lambda found: _escape(found[0]), text)


def show_unseen(text: str) -> str:
    """Show as visible escapes: every invisible character, and those that change the order of others."""
    return "".join(_escape(char) if _is_unseen(char) else char for char in text)


def _is_unseen(char: str) -> bool:
    return unicodedata.category(char) in _UNSEEN_CATEGORIES or char in _UNSEEN_LETTERS


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
