"""Keeps text of people, files and tools from imitating our own markup or a model's chat template.

A line that could be mistaken for a block header, a section title or a channel tag is prefixed with `| `. Such lines
that already begin with `| ` get one more, so that the marking can be undone.
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
    "UNAVAILABLE TOOLS",
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
"""Some belong to the request for a summary, which the conversation must not be able to imitate either."""
MAX_NAME_CHARS = 300
_NAMES = "|".join(re.escape(name) for name in (*_SECTIONS, *(kind.value for kind in BlockType)))
_BREAK = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""All characters that `str.splitlines` treats as the end of a line."""
_BREAKS = re.compile(rf"([{_BREAK}])")
_BRACKETS = re.compile("[\\[<\ufe47\ufe64\uff1c\uff3b]")
"""The first characters of our markup, in every form that NFKC folds into them."""

IGNORABLE_RANGES: Final = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Default_Ignorable_Code_Point of Unicode (DerivedCoreProperties.txt), which `unicodedata` lacks. It includes
unassigned code points: those that will be invisible once assigned are invisible today."""
BLANKS: Final = "\u2800\U0001d159"
"""Invisible although Unicode counts them as symbols: the empty Braille cell, the null note head."""
_IGNORABLE = "".join(f"{chr(first)}-{chr(last)}" for first, last in IGNORABLE_RANGES)
_VISIBLE = re.compile(rf"[^\s\x00-\x1f\x7f-\x9f{BLANKS}{_IGNORABLE}]")
_FOLDED_PLANES: Final = 0x20000
"""Characters that need folding are all in the first two planes, except those in the last range."""

_ASCII = re.compile("[!-~]")

_OURS = re.compile(rf"(?>(?:\| )*)(?:\s*\[\s*(?:{_NAMES})(?![\w.])|.*</?channel:)", re.IGNORECASE | re.DOTALL)
"""Matched against one folded line."""
_BRACKETED = "INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT"
"""Names of the control tokens in square brackets that begin or end a message in the templates of Mistral."""
_TOKEN = re.compile(
    r"<\|(?= *[A-Za-z_]\w* *\|>)|<\uff5c(?= *[^\s<>\uff5c]{1,40}\uff5c>)|<(?= *(?:start|end)_of_turn>)"
    rf"|\[(?= */?(?:{_BRACKETED})\])|<<(?= */?SYS>>)"
)
"""The beginning of a chat-template token. A server that parses tokens in content treats them as a new message. `<s>`
and `</s>` are left alone: they are HTML too, and a blank in them would damage what the model edits."""
_SPACED_TOKEN = re.compile(
    r"(<\|) (?= *[A-Za-z_]\w* *\|>)|(<\uff5c) (?= *[^\s<>\uff5c]{1,40}\uff5c>)|(<) (?= *(?:start|end)_of_turn>)"
    rf"|(\[) (?= */?(?:{_BRACKETED})\])|(<<) (?= */?SYS>>)"
)
"""The same tokens after `make_inert`."""

_FIELD_SIGNS: Final = {ord(char): f"\\u{ord(char):04x}" for char in "[]="}
_ESCAPED_SIGN = re.compile(r"\\u00(5b|5d|3d)")


def _build_folding() -> dict[int, str | None]:
    """A table for `str.translate`: as NFKC where that yields a character of our markup or a blank. Removes characters
    that are invisible or combine with their neighbour, because they can disguise imitated markup.

    Normalizing itself is too slow for untrusted texts: its time grows with the square of a run of combining characters
    (0.1 s for 5,000), one character can become eighteen, and it blocks all threads of the process.
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


_FOLDING = _build_folding()


def make_inert(text: str) -> str:
    """The text with every line that imitates our markup marked, and chat-template tokens broken by a blank.

    A line is checked in its folded form, without invisible characters. Apart from the marks and blanks the text is
    unchanged.
    """
    if not _BRACKETS.search(text):
        return text  # all markup begins with a bracket, and checking every line of a long text is slow
    text = _TOKEN.sub(r"\g<0> ", text)
    lines = _BREAKS.split(text)
    lines[::2] = [MARK + line if _is_ours(line) else line for line in lines[::2]]
    return "".join(lines)


def read_back(inert: str) -> str:
    """The original input of `make_inert`."""
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
    """Whether a reader sees nothing: the text is empty, or has only blanks and invisible characters."""
    return _VISIBLE.search(text) is None


def escape_line(text: str) -> str:
    """A name for one line of a header: control and invisible characters as `\\uXXXX`, chat-template tokens broken."""
    if "<" in text or "[" in text:
        text = _TOKEN.sub(r"\g<0> ", text)
    if text.isascii() and text.isprintable():
        return text  # true for nearly all names, and every line of a prompt has some
    return "".join(char if _is_plain(char) else ascii(char)[1:-1] for char in text)


def escape_field(text: str) -> str:
    """A name inside a header in square brackets: as `escape_line`, with brackets and equals signs escaped, so that it
    can't end the header or begin another field. JSON decodes the escapes, so the name can be passed to a tool as shown.
    """
    return escape_line(text).translate(_FIELD_SIGNS)


def read_field(field: str) -> str:
    """Restore the brackets and equals signs that `escape_field` replaced."""
    return _ESCAPED_SIGN.sub(lambda found: chr(int(found[1], 16)), field)


def escape_name(text: str) -> str:
    """A name of any length given by someone else, shortened."""
    return escape_line(text if len(text) <= MAX_NAME_CHARS else text[:MAX_NAME_CHARS] + "...")


def _is_plain(char: str) -> bool:
    return (char.isascii() and char.isprintable()) or unicodedata.category(char)[0] not in "CZ"
