"""File names as we keep them: one canonical form that is safe to store, show and join to a folder."""

import re
import unicodedata
from collections.abc import Sequence

MAX_NAME_BYTES = 255
MAX_READ_CHARS = 512
"""Of a longer name the middle is left out first: normalizing it would take a time that grows with its square."""
_MAX_END_CHARS = 24
"""Of these, from its end: more than an extension has."""
FALLBACK_NAME = "file"

_DROPPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls, format characters such as bidi overrides and zero-width ones, surrogates, unassigned, line separators."""
_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"
_PICTURES = frozenset({"So", "Sk", "Sm"})
"""Of emoji; skin colours are modifier symbols."""
_SPACES = re.compile(r"\s+")


def clean_name(raw: str) -> str:
    """The last part of the path `raw`, in NFC, without invisible characters, 1 to 255 bytes, never `.` or `..`."""
    last = re.split(r"[/\\]", raw)[-1]
    if len(last) > MAX_READ_CHARS:
        last = last[: MAX_READ_CHARS - _MAX_END_CHARS] + last[-_MAX_END_CHARS:]
    text = unicodedata.normalize("NFC", last)
    visible = "".join(
        char
        for place, char in enumerate(text)
        if unicodedata.category(char) not in _DROPPED or (char == _JOINER and _joins_emoji(text, place))
    )
    name = _SPACES.sub(" ", visible).strip()
    if not name.strip(". "):
        return FALLBACK_NAME
    return shorten(name)


def _joins_emoji(text: str, place: int) -> bool:
    """Whether a joiner makes one picture of two, such as of a person and a laptop."""
    before, after = text[:place].rstrip(_EMOJI_STYLE)[-1:], text[place + 1 : place + 2]
    return bool(before and after) and all(unicodedata.category(char) in _PICTURES for char in (before, after))


def shorten(name: str, suffix: str = "") -> str:
    """Put `suffix` before the extension, cutting the stem so that all fits in 255 bytes."""
    stem, extension = split_extension(name)
    room = MAX_NAME_BYTES - len((suffix + extension).encode())
    kept = stem.encode()[:room].decode("utf-8", errors="ignore").rstrip()
    return f"{kept or FALLBACK_NAME[:room]}{suffix}{extension}"


def split_extension(name: str) -> tuple[str, str]:
    """`report.csv` is (`report`, `.csv`); an extension has at most 16 bytes and something before it."""
    stem, dot, extension = name.rpartition(".")
    if dot and stem and 0 < len(extension.encode()) <= 16 and " " not in extension:
        return stem, f".{extension}"
    return name, ""


def name_apart(names: Sequence[str]) -> tuple[str, ...]:
    """Clean names, the second of the same name as `name (2).ext`; upper and lower case count as the same."""
    taken: set[str] = set()
    kept: list[str] = []
    for raw in names:
        name = clean_name(raw)
        free, number = name, 1
        while free.casefold() in taken:
            number += 1
            free = shorten(name, f" ({number})")
        taken.add(free.casefold())
        kept.append(free)
    return tuple(kept)
