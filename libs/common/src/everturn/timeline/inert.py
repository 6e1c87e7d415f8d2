"""Keeps text of people, files and tools from looking like our own markup or like a model's chat template.

A line that could be taken for a block header, a section title or a channel tag gets `| ` before it. Lines of that
kind which already begin with `| ` get one more, so the marking can be undone.
"""

import re
import unicodedata
from typing import Final

from everturn.timeline.blocks import BlockType

MARK = "| "
_SECTIONS = (
    "ANNOUNCE",
    "BUDGET",
    "CONTEXT CAPS",
    "RUNTIME LIMITS",
    "TEMPORAL CONTEXT",
    "OPEN PLANS",
    "LIVE TURN EVENTS",
    "USER MEMORY HOTSET",
    "WORKSPACE",
    "PRUNE NOTICES",
    "NEW FEEDBACK",
    "SOURCES POOL",
    "COMPACTED PRIOR CONVERSATION MEMORY",
    "MID-TURN CHECKPOINT",
    "CLOSING",
    "WORKING SUMMARIES",
    "PREVIOUS MEMORY",
    "RECORD",
    "TOOLS",
    "TURN",
)
"""Some are those of the request for a summary, which the conversation must not be able to write either."""
MAX_NAME_CHARS = 300
_NAMES = "|".join(re.escape(name) for name in (*_SECTIONS, *(kind.value for kind in BlockType)))
_BREAK = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""All that `str.splitlines` takes for the end of a line."""
_BREAKS = re.compile(rf"([{_BREAK}])")
_BRACKETS = re.compile("[\\[<\ufe47\ufe64\uff1c\uff3b]")
"""What begins our markup, in every form that NFKC folds into it."""

IGNORABLE_RANGES: Final = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Default_Ignorable_Code_Point of Unicode (DerivedCoreProperties.txt), which `unicodedata` does not have. Unassigned
ones are in it too: what will be drawn as nothing later is drawn as nothing today."""
BLANKS: Final = "\u2800\U0001d159"
"""Drawn as nothing although Unicode counts them among the symbols: the empty Braille cell, the null note head."""
_IGNORABLE = "".join(f"{chr(first)}-{chr(last)}" for first, last in IGNORABLE_RANGES)
_VISIBLE = re.compile(rf"[^\s\x00-\x1f\x7f-\x9f{BLANKS}{_IGNORABLE}]")
_FOLDED_PLANES: Final = 0x20000
"""No character that has to be folded is above the first two planes, but for those in the last range."""


def _build_folding() -> dict[int, str | None]:
    """For `str.translate`: as NFKC, where that gives a character of our markup or a blank; what is drawn as nothing or
    onto its neighbour is left out, because it hides that a line is ours.

    Normalizing itself is too slow for texts of strangers: its time grows with the square of a run of combining
    characters (0.1 s for 5,000), one character may become eighteen, and no thread of the process runs meanwhile.
    """
    folding: dict[int, str | None] = {}
    for char in map(chr, range(_FOLDED_PLANES)):
        if unicodedata.category(char) in ("Cc", "Cf", "Mn", "Me") or unicodedata.combining(char):
            folding[ord(char)] = None
        elif unicodedata.decomposition(char):
            folded = unicodedata.normalize("NFKC", char)
            if folded != char and (folded.isspace() or _ASCII.search(folded)):
                folding[ord(char)] = folded
    for first, last in IGNORABLE_RANGES:
        folding.update(dict.fromkeys(range(first, last + 1)))
    return folding | dict.fromkeys(map(ord, BLANKS)) | {ord("\t"): "\t"}


_ASCII = re.compile("[!-~]")
_FOLDING = _build_folding()
_OURS = re.compile(rf"(?>(?:\| )*)(?:\s*\[\s*(?:{_NAMES})(?![\w.])|.*</?channel:)", re.IGNORECASE | re.DOTALL)
"""Matched against one line that is folded."""
_BRACKETED = "INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT"
"""Names of the control tokens in square brackets that begin or end a message in the templates of Mistral."""
_TOKEN = re.compile(
    r"<\|(?= *[A-Za-z_]\w* *\|>)|<\uff5c(?= *[^\s<>\uff5c]{1,40}\uff5c>)|<(?= *(?:start|end)_of_turn>)"
    rf"|\[(?= */?(?:{_BRACKETED})\])|<<(?= */?SYS>>)"
)
"""The beginning of a token of a chat template. A server that looks for tokens in content takes them for a new message.
`<s>` and `</s>` are left alone: they are HTML too, and a blank in them would damage what the model edits."""
_SPACED_TOKEN = re.compile(
    r"(<\|) (?= *[A-Za-z_]\w* *\|>)|(<\uff5c) (?= *[^\s<>\uff5c]{1,40}\uff5c>)|(<) (?= *(?:start|end)_of_turn>)"
    rf"|(\[) (?= */?(?:{_BRACKETED})\])|(<<) (?= */?SYS>>)"
)
"""The same after `make_inert`."""


def make_inert(text: str) -> str:
    """The text with every line that looks like our markup marked, and tokens of chat templates taken apart by a blank.

    Whether a line looks like ours is judged without what is drawn as nothing, and in the plain form of each character;
    all text but the mark and the blank is as it was.
    """
    if not _BRACKETS.search(text):
        return text  # all of it begins with one of them, and to look at every line of a long text takes long
    text = _TOKEN.sub(r"\g<0> ", text)
    lines = _BREAKS.split(text)
    lines[::2] = [MARK + line if _is_ours(line) else line for line in lines[::2]]
    return "".join(lines)


def read_back(inert: str) -> str:
    """What `make_inert` was given."""
    if not _BRACKETS.search(inert):
        return inert
    lines = _BREAKS.split(inert)
    lines[::2] = [line.removeprefix(MARK) if line.startswith(MARK) and _is_ours(line) else line for line in lines[::2]]
    return _SPACED_TOKEN.sub(lambda found: found[0][:-1], "".join(lines))


def _is_ours(line: str) -> bool:
    if not _BRACKETS.search(line):
        return False
    if not (line.isascii() and line.isprintable()):
        line = line.translate(_FOLDING)
    return _OURS.match(line) is not None


def is_blank(text: str) -> bool:
    """Whether a reader sees nothing: the text is empty, or all of it is blank or drawn as nothing."""
    return _VISIBLE.search(text) is None


def escape_line(text: str) -> str:
    """A name for one line of a header: control and invisible characters as `\\uXXXX`, chat-template tokens apart."""
    if "<" in text or "[" in text:
        text = _TOKEN.sub(r"\g<0> ", text)
    if text.isascii() and text.isprintable():
        return text  # nearly all of them, and every line of a prompt has some
    return "".join(char if _is_plain(char) else ascii(char)[1:-1] for char in text)


_FIELD_SIGNS: Final = {ord(char): f"\\u{ord(char):04x}" for char in "[]="}
_ESCAPED_SIGN = re.compile(r"\\u00(5b|5d|3d)")


def escape_field(text: str) -> str:
    """A name inside a header in square brackets: as `escape_line`, and without what would end the header or begin
    another field of it. JSON reads the escapes as the characters, so the name can be handed to a tool as it is shown.
    """
    return escape_line(text).translate(_FIELD_SIGNS)


def read_field(field: str) -> str:
    """The name with the brackets and equals signs that `escape_field` was given."""
    return _ESCAPED_SIGN.sub(lambda found: chr(int(found[1], 16)), field)


def escape_name(text: str) -> str:
    """A name that somebody gave, which may be of any length, in short."""
    return escape_line(text if len(text) <= MAX_NAME_CHARS else text[:MAX_NAME_CHARS] + "...")


def _is_plain(char: str) -> bool:
    return (char.isascii() and char.isprintable()) or unicodedata.category(char)[0] not in "CZ"
