"""Finds the files of other turns that a program names by their full path. Reads text only; nothing is executed.

Programs and file names are untrusted, so all work here is bounded; with many files it still belongs in a thread.
"""

import heapq
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import cast

from chat_proc.workspace.local import LocalFile

MAX_PLACES = 20
"""Turns whose files are loaded for one program."""
MAX_LITERALS = 200
MAX_LITERAL_CHARS = 1024
"""Limit of the part after the turn."""
MAX_SEARCH_CHARS = 200_000_000
"""Limit of text length times number of files: about 0.1 s. Above it, only file names in quotes count."""
MAX_SIMILAR_CHARS = 160
"""Compared characters of a path, from its end."""
MAX_COMPARED = 10
"""Paths that one path is compared with in detail: each takes up to 2 ms, all others a hundredth of it."""
_PLACE = re.compile(r"(?:(?<![A-Za-z0-9_-])(conv_[A-Za-z0-9_-]{1,75})/)?(?<![A-Za-z0-9_-])(turn_[A-Za-z0-9_-]{1,75})/")
_QUOTED = re.compile(r"([\"'\n])")
_MAX_PLACE_CHARS = 1 + 2 * (len("conv_/") + 75)
_ESCAPE = re.compile(r"\\{1,2}u([0-9a-fA-F]{4})")
_OPEN = re.compile(r"[{*?\[%\\]")
"""Where a literal stops being a plain path: a placeholder, a wildcard, an escape."""


@dataclass(frozen=True, slots=True)
class Names:
    """`places` are pairs of conversation, None for this one, and turn; `literals` are the quoted strings."""

    text: str
    places: tuple[tuple[str | None, str], ...]
    literals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matched:
    """Named files, in the given order, and named paths that don't exist."""

    files: tuple[LocalFile, ...]
    unknown: tuple[str, ...]


def find_names(texts: Sequence[str]) -> Names:
    """The names in a program and its contract. Escapes such as \\u00e9 are read as the character."""
    text = "\n".join(texts)
    if _ESCAPE.search(text):
        text = _unescape(text)
    places = dict.fromkeys((match[1], match[2]) for match in _PLACE.finditer(text))
    literals = dict.fromkeys(_find_literals(text))
    return Names(text, tuple(places)[:MAX_PLACES], tuple(literals)[:MAX_LITERALS])


def match_names(names: Names, files: Sequence[LocalFile]) -> Matched:
    """Files whose full path is in the text, or that are in a named folder."""
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
    searched = names.text if len(names.text) * len(files) <= MAX_SEARCH_CHARS else frozenset(names.literals)
    chosen = [file for file in files if file.path in searched or file.path.startswith(tuple(folders))]
    return Matched(tuple(chosen), tuple(unknown))


def find_similar(path: str, known: Iterable[str], *, count: int, cutoff: float) -> list[str]:
    """The paths most similar to this one, with a ratio of at least `cutoff`, the best first."""
    matcher = SequenceMatcher(None, "", path[-MAX_SIMILAR_CHARS:])

    def rate(other: str, ratio: str) -> tuple[float, str]:
        matcher.set_seq1(other[-MAX_SIMILAR_CHARS:])
        return getattr(matcher, ratio)(), other

    hopeful = heapq.nlargest(MAX_COMPARED, (rate(other, "quick_ratio") for other in known))
    rated = (rate(other, "ratio") for rating, other in hopeful if rating >= cutoff)
    return [other for rating, other in heapq.nlargest(count, rated) if rating >= cutoff]


def _find_literals(text: str) -> Iterator[str]:
    """Strings that begin with a turn's folder and end at a quote."""
    parts = _QUOTED.split(text)
    for part, end in zip(parts[::2], parts[1::2], strict=False):
        if end == "\n":
            continue
        first = max(0, len(part) - MAX_LITERAL_CHARS - _MAX_PLACE_CHARS)
        for place in _PLACE.finditer(part, first):
            if len(part) - place.end() <= MAX_LITERAL_CHARS:
                yield part[place.start() :]
                break


def _unescape(text: str) -> str:
    """Decode escapes: a surrogate pair becomes one character, a lone surrogate U+FFFD."""
    halves = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
    return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def render_result(result: Mapping[str, object]) -> str:
    """The object as text, without empty lists and None. Parts of it can be read by lines. Each item of a list is on a
    line of its own."""
    fields = [f"{json.dumps(key)}: {_render(value)}" for key, value in result.items() if value not in (None, [], ())]
    return "{" + ",\n".join(fields) + "}"


def _render(value: object) -> str:
    if isinstance(value, list | tuple):
        items = cast("list[object]", value)
        return "[\n" + ",\n".join(_dump(item) for item in items) + "]"
    return _dump(value)


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
