"""Keeps text of people, files and tools from looking like our own markup: marks such lines, and reads them back.

A line that could be taken for a block header, a section title or a channel tag gets `| ` before it. Lines of that
kind which already begin with `| ` get one more, so the marking can be undone.
"""

import re
import unicodedata

from everturn.model.blocks import BlockType

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
    "CLOSING",
    "WORKING SUMMARIES",
    "RECORD",
    "PREVIOUS MEMORY",
)
"""The last three are those of the request for a summary, which the conversation must not be able to write either."""
MAX_NAME_CHARS = 300
_NAMES = "|".join(re.escape(name) for name in (*_SECTIONS, *(kind.value for kind in BlockType)))
_BREAK = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""All that `str.splitlines` takes for the end of a line."""
_UNSEEN = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0"
)
"""What has no shape of its own: before our markup it can't be told from nothing."""
_GAP = rf"(?>(?:[^\S{_BREAK}]|[{_UNSEEN}])*)"
_LINE_START = rf"(?:\A|(?<=[{_BREAK}]))"
_OURS = rf"(?:{_GAP}\[{_GAP}(?:{_NAMES})(?![\w.])|[^{_BREAK}]*</?channel:)"
_TO_MARK = re.compile(rf"{_LINE_START}(?=(?>(?:\| )*){_OURS})", re.IGNORECASE)
_TO_UNMARK = re.compile(rf"{_LINE_START}\| (?=(?>(?:\| )*){_OURS})", re.IGNORECASE)


def make_inert(text: str) -> str:
    """The text with every line that looks like our markup marked; all other text is as it was."""
    if "[" not in text and "<" not in text:
        return text  # our markup has one of them, and to look at every line of a long text takes long
    return _TO_MARK.sub(MARK, text)


def read_back(inert: str) -> str:
    """What `make_inert` was given."""
    return _TO_UNMARK.sub("", inert)


def escape_line(text: str) -> str:
    """A name for one line of a header: control and invisible characters as `\\uXXXX`."""
    if text.isascii() and text.isprintable():
        return text  # nearly all of them, and every line of a prompt has some
    return "".join(char if _is_plain(char) else ascii(char)[1:-1] for char in text)


def escape_name(text: str) -> str:
    """A name that somebody gave, which may be of any length, in short."""
    return escape_line(text if len(text) <= MAX_NAME_CHARS else text[:MAX_NAME_CHARS] + "...")


def _is_plain(char: str) -> bool:
    return (char.isascii() and char.isprintable()) or unicodedata.category(char)[0] not in "CZ"
