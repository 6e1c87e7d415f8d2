"""Reads JSON while a model writes it. Pieces are tracked just enough to find where a value is complete."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from chat_proc.models.json_values import FENCE_START, MAX_DEPTH
from everturn.core.storable import replace_unstorable

_WHOLE_UNITS = re.compile(r'(?>(?:[^"\\]++|\\(?:[^u]|u[0-9a-fA-F]{4}))*)', re.DOTALL)
_ESCAPE_BEGINNING = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_HIGH_SURROGATE_AT_END = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
_LAST_ESCAPE_CHARS = 6
_STRING_DECODER = json.JSONDecoder(strict=False)

MAX_LEAD_CHARS = 64

Path = tuple[str | int, ...]
_LEAD = re.compile(rf"\s*+(?:{FENCE_START}\s*+)?")
_BLANKS = re.compile(r"[ \t\r\n]*+")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]++")


class StringRun(NamedTuple):
    """One JSON string that arrives in pieces, which can split escapes and surrogate pairs anywhere.

    `text` is decoded; reading continues at `end`. `closed`: the closing quote was read; `broken`: an escape is invalid.
    """

    text: str
    end: int
    closed: bool
    broken: bool = False


def decode_run(source: str, start: int) -> StringRun:
    """Decode from `start`, inside a string, as far as `source` allows; the rest is to be prepended to the next
    piece."""
    found = _WHOLE_UNITS.match(source, start)
    end = found.end() if found else start
    if end < len(source) and source[end] == '"':
        return _decoded(source[start:end], end + 1, closed=True)
    if end < len(source) and not _ESCAPE_BEGINNING.fullmatch(source, end):
        return StringRun("", end, closed=False, broken=True)
    end = _before_lone_high_surrogate(source, start, end)
    return _decoded(source[start:end], end, closed=False)


def _before_lone_high_surrogate(source: str, start: int, end: int) -> int:
    """Its other half may still arrive; after an escaped backslash, `u` does not begin an escape, which only
    counting the backslashes shows."""
    first = max(start, end - _LAST_ESCAPE_CHARS)
    if source.find("\\", first, end) < 0:
        return end
    found = _HIGH_SURROGATE_AT_END.search(source, first, end)
    if found is None or _backslashes_before(source, start, found.start()) % 2:
        return end
    return found.start()


def _backslashes_before(source: str, start: int, end: int) -> int:
    return end - start - len(source[start:end].rstrip("\\"))


def _decoded(raw: str, end: int, *, closed: bool) -> StringRun:
    if "\\" not in raw:
        return StringRun(replace_unstorable(raw), end, closed)
    try:
        text: str = _STRING_DECODER.raw_decode(f'"{raw}"')[0]
    except ValueError:
        return StringRun("", end, closed, broken=True)
    return StringRun(replace_unstorable(text), end, closed)


class FieldText(NamedTuple):
    """The next piece of the value at `path`: decoded text of a string, otherwise JSON text. Never empty.

    Built for every chunk; a tuple is twice as fast as a dataclass.
    """

    path: Path
    text: str
    is_json: bool = False


@dataclass(frozen=True, slots=True)
class FieldEnd:
    """The value at `path` is complete, or (`complete` false) the input ended before it was."""

    path: Path
    complete: bool


FieldPiece = FieldText | FieldEnd


class _State(Enum):
    LEAD = 0
    KEY_OR_END = 1
    KEY = 2
    COLON = 3
    VALUE = 4
    VALUE_OR_END = 5
    COMMA_OR_END = 6
    STRING = 7
    SCALAR = 8
    OVER = 9


class JsonFieldReader:
    """Reads one object, by `feed` and then `finish`. `watch` chooses paths; a path that occurs twice is streamed once.

    With `strings_only`, watched values that are not strings are skipped; otherwise they are streamed as JSON text, and
    nothing inside them is watched.

    It checks enough of the grammar to stop at the first error; whether the object is valid is decided from the whole
    text.
    """

    def __init__(self, watch: Callable[[Path], bool], *, strings_only: bool = False) -> None:
        self._watch = watch
        self._strings_only = strings_only
        self._state = _State.LEAD
        self._reads_key = False
        self._key: list[str] = []
        self._rest = ""
        self._where: list[str | int] = []
        self._watched: Path | None = None
        self._copied_depth: int | None = None
        self._seen: set[Path] = set()
        self._pieces: list[FieldPiece] = []

    @property
    def is_over(self) -> bool:
        """Whether the object has ended, or is found to be invalid."""
        return self._state is _State.OVER

    def feed(self, text: str) -> list[FieldPiece]:
        """Return what `text` adds to the watched fields."""
        if self._state is _State.OVER:
            return []
        if self._is_plain(text):
            return [FieldText(self._watched, replace_unstorable(text))] if self._watched is not None and text else []
        text = self._rest + text
        self._rest = ""
        position = 0
        while position < len(text):
            position = self._step(text, position)
        return self._take_pieces()

    def finish(self) -> list[FieldPiece]:
        """End a field that is still open."""
        self._state = _State.OVER
        self._end_field(complete=False)
        return self._take_pieces()

    def _is_plain(self, text: str) -> bool:
        """Whether `text` only continues the current string, as most chunks of a long text do."""
        return (
            self._state is _State.STRING
            and not self._rest
            and not self._reads_key
            and self._copied_depth is None
            and '"' not in text
            and "\\" not in text
        )

    def _take_pieces(self) -> list[FieldPiece]:
        pieces = self._pieces
        self._pieces = []
        return pieces

    def _step(self, text: str, position: int) -> int:
        state = self._state
        if state is _State.STRING:
            return self._read_string(text, position)
        if state is _State.OVER:
            return len(text)
        if state is _State.LEAD:
            return self._read_lead(text, position)
        if state is _State.SCALAR:
            return self._read_scalar(text, position)
        blanks = _BLANKS.match(text, position)
        after = blanks.end() if blanks else position
        if self._copied_depth is not None:
            self._copy(text[position : after + 1] if text[after : after + 1] in '"{}[],:' else text[position:after])
        return after if after == len(text) else self._read_structure(text, after)

    def _read_lead(self, text: str, position: int) -> int:
        """Only blanks and an opening code fence may precede the object."""
        start = text.find("{", position)
        lead = text[position : start if start >= 0 else len(text)]
        if start >= 0 and _LEAD.fullmatch(lead):
            self._open_container(is_object=True)
            return start + 1
        if start >= 0 or len(lead.lstrip()) > MAX_LEAD_CHARS:
            self._stop()
        else:
            self._rest = lead.lstrip()
        return len(text)

    def _read_structure(self, text: str, position: int) -> int:
        char = text[position]
        state = self._state
        if char == '"' and state in (_State.KEY, _State.KEY_OR_END):
            self._reads_key = True
            self._state = _State.STRING
        elif char == ":" and state is _State.COLON:
            self._state = _State.VALUE
        elif char == "," and state is _State.COMMA_OR_END:
            self._next_member()
        elif char in "}]" and state in (_State.KEY_OR_END, _State.VALUE_OR_END, _State.COMMA_OR_END):
            self._close_container(char)
        elif state in (_State.VALUE, _State.VALUE_OR_END):
            return self._open_value(char, position)
        else:
            self._stop()
        return position + 1

    def _open_value(self, char: str, position: int) -> int:
        is_scalar = _SCALAR.match(char) is not None
        self._begin_field(is_string=char == '"')
        if char == '"':
            self._state = _State.STRING
        elif is_scalar:
            self._state = _State.SCALAR
            return position
        elif char in "{[":
            if self._watched is not None and self._copied_depth is None:
                self._copied_depth = len(self._where)
                self._pieces.append(FieldText(self._watched, char, is_json=True))
            self._open_container(is_object=char == "{")
        else:
            self._stop()
        return position + 1

    def _read_scalar(self, text: str, position: int) -> int:
        run = _SCALAR.match(text, position)
        end = run.end() if run else position
        if end > position and self._watched is not None:
            self._pieces.append(FieldText(self._watched, text[position:end], is_json=True))
        if end < len(text):
            self._end_value()
        return end

    def _read_string(self, text: str, position: int) -> int:
        run = decode_run(text, position)
        if self._copied_depth is not None:
            self._copy(text[position : run.end])
        if self._reads_key:
            self._key.append(run.text)
        elif run.text and self._watched is not None and self._copied_depth is None:
            self._pieces.append(FieldText(self._watched, run.text))
        if run.broken:
            self._stop()
        elif run.closed:
            self._end_string()
        else:
            self._rest = text[run.end :]
            return len(text)
        return run.end

    def _end_string(self) -> None:
        if not self._reads_key:
            self._end_value()
            return
        self._reads_key = False
        self._where[-1] = "".join(self._key)
        self._key.clear()
        self._state = _State.COLON

    def _open_container(self, *, is_object: bool) -> None:
        self._where.append("" if is_object else 0)
        self._state = _State.KEY_OR_END if is_object else _State.VALUE_OR_END
        if len(self._where) > MAX_DEPTH:
            self._stop()

    def _close_container(self, char: str) -> None:
        is_object = isinstance(self._where.pop(), str)
        if is_object != (char == "}"):
            self._stop()
        else:
            self._end_value()

    def _next_member(self) -> None:
        last = self._where[-1]
        if isinstance(last, str):
            self._state = _State.KEY
        else:
            self._where[-1] = last + 1
            self._state = _State.VALUE

    def _begin_field(self, *, is_string: bool) -> None:
        if self._watched is not None or (self._strings_only and not is_string):
            return
        path = tuple(self._where)
        if self._watch(path) and path not in self._seen:
            self._seen.add(path)
            self._watched = path

    def _end_value(self) -> None:
        self._state = _State.COMMA_OR_END if self._where else _State.OVER
        if self._copied_depth is None or self._copied_depth == len(self._where):
            self._end_field(complete=True)

    def _end_field(self, *, complete: bool) -> None:
        if self._watched is not None:
            self._pieces.append(FieldEnd(self._watched, complete))
        self._watched = None
        self._copied_depth = None

    def _copy(self, raw: str) -> None:
        if raw and self._copied_depth is not None and self._watched is not None:
            self._pieces.append(FieldText(self._watched, raw, is_json=True))

    def _stop(self) -> None:
        """Stop streaming, because the text is not valid JSON."""
        self._state = _State.OVER
        self._end_field(complete=False)
