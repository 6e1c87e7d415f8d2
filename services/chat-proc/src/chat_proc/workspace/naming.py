"""Finds the files of other turns that a program names by their whole path. Reads text only; nothing is executed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from chat_proc.workspace.local import LocalFile

MAX_PLACES = 20
"""Turns whose files are looked up for one program."""
MAX_LITERALS = 200
_PLACE = re.compile(r"(?:(?<![A-Za-z0-9_-])(conv_[A-Za-z0-9_-]{1,75})/)?(?<![A-Za-z0-9_-])(turn_[A-Za-z0-9_-]{1,75})/")
_LITERAL = re.compile(
    r"(?<![A-Za-z0-9_-])((?:conv_[A-Za-z0-9_-]{1,75}/)?turn_[A-Za-z0-9_-]{1,75}/[^\"'\n]{0,1024})(?=[\"'])"
)
_ESCAPE = re.compile(r"\\{1,2}u([0-9a-fA-F]{4})")
_OPEN = re.compile(r"[{*?\[%\\]")
"""Where a literal stops being a path: a placeholder, a wildcard, an escape."""


@dataclass(frozen=True, slots=True)
class Names:
    """`places` are pairs of conversation, None for this one, and turn; `literals` are what stands in quotes."""

    text: str
    places: tuple[tuple[str | None, str], ...]
    literals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matched:
    """Files that are named, in the order they were given, and paths that are named and not there."""

    files: tuple[LocalFile, ...]
    unknown: tuple[str, ...]


def find_names(texts: Sequence[str]) -> Names:
    """What a program and its contract name. Escapes such as \\u00e9 are read as the character."""
    text = "\n".join(texts)
    if _ESCAPE.search(text):
        text = _unescape(text)
    places = dict.fromkeys((match[1], match[2]) for match in _PLACE.finditer(text))
    literals = dict.fromkeys(match[1] for match in _LITERAL.finditer(text))
    return Names(text, tuple(places)[:MAX_PLACES], tuple(literals)[:MAX_LITERALS])


def match_names(names: Names, files: Sequence[LocalFile]) -> Matched:
    """Files whose whole path is in the text, or that lie in a folder which is named."""
    paths = {file.path for file in files}
    folders: set[str] = set()
    unknown: list[str] = []
    for literal in names.literals:
        stop = _OPEN.search(literal)
        named = literal[: stop.start()].rpartition("/")[0] if stop else literal.rstrip("/")
        if any(path.startswith(f"{named}/") for path in paths):
            folders.add(f"{named}/")
        elif stop is None and named not in paths:
            unknown.append(literal)
    chosen = [file for file in files if file.path in names.text or file.path.startswith(tuple(folders))]
    return Matched(tuple(chosen), tuple(unknown))


def _unescape(text: str) -> str:
    """Two escapes of one character beyond the first plane become that character; a lone half becomes U+FFFD."""
    halves = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
    return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
