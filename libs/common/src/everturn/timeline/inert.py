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
    "TOOLS",
    "TURN",
)
_NAMES = "|".join(re.escape(name) for name in (*_SECTIONS, *(kind.value for kind in BlockType)))
_BREAK = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""All that `str.splitlines` takes for the end of a line."""
_LINE_START = rf"(?:\A|(?<=[{_BREAK}]))"
_OURS = rf"(?:[^\S{_BREAK}]*+\[(?:{_NAMES})(?![\w.])|[^{_BREAK}]*</?channel:)"
_TO_MARK = re.compile(rf"{_LINE_START}(?=(?>(?:\| )*){_OURS})", re.IGNORECASE)
_TO_UNMARK = re.compile(rf"{_LINE_START}\| (?=(?>(?:\| )*){_OURS})", re.IGNORECASE)


def make_inert(text: str) -> str:
    """The text with every line that looks like our markup marked; all other text is as it was."""
    return _TO_MARK.sub(MARK, text)


def read_back(inert: str) -> str:
    """What `make_inert` was given."""
    return _TO_UNMARK.sub("", inert)


def escape_line(text: str) -> str:
    """A name for one line of a header: control and invisible characters as `\\uXXXX`."""
    return "".join(char if _is_plain(char) else ascii(char)[1:-1] for char in text)


def _is_plain(char: str) -> bool:
    return (char.isascii() and char.isprintable()) or unicodedata.category(char)[0] not in "CZ"
