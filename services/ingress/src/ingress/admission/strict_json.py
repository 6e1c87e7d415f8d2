"""Strict JSON: rejects what is ambiguous or can't be stored.

A large body is parsed in a thread and in pieces: the parser and regular expressions hold the GIL during each call, so a
thread alone would still block the event loop.
"""

import asyncio
import codecs
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NoReturn, TypeVar, cast

from everturn.core.errors import EverturnError

MAX_DEPTH = 64
MAX_TOKENS = 10_000
"""Strings, brackets and commas in one body; the largest legitimate body has a few hundred."""
MAX_NUMBER_CHARS = 40
_MAX_INT = 2**63 - 1

LARGE_BYTES = 65_536
"""Larger bodies are parsed off the event loop; 64 KiB with the most tokens take about 5 ms."""
PARSERS = 2
"""Threads that parse large bodies, per process. More would only compete for the GIL."""
_PIECE_BYTES = 16_384
"""How much of a string, or of the text between strings, one call scans: less than a millisecond."""
_LONG_BYTES = 256
"""Longer strings are read separately in large bodies; 10,000 shorter ones are parsed in about 10 ms."""

MAX_KEY_BYTES = 2_048
"""Limit for one key in its escaped form. Keys are parsed with the text around them, however large the body."""
MAX_LONG_KEYS_BYTES = 131_072
"""Limit for all keys longer than _LONG_BYTES together: they add at most 2 ms to the call that parses the text around
strings."""

_OUTSIDE = re.compile(rb'[^"\[\]{},]*+')
_INSIDE = re.compile(rb'[^"\\]*+(?>(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*+)*)', re.DOTALL)
"""The complete part of a string: it ends before the closing quote, or before a truncated or invalid escape."""
_COLON = re.compile(rb"[ \t\r\n]*+:")
_QUOTE, _BACKSLASH = b'"\\'

Parsed = TypeVar("Parsed")
_parsers = ThreadPoolExecutor(max_workers=PARSERS, thread_name_prefix="json")


class BadJson(EverturnError):
    """The body is not valid JSON."""


async def load_strict(raw: bytes) -> Any:
    """Like `parse_strict`, but a large text is parsed in one of a few threads, waiting for a free one."""
    return await run_parser(partial(parse_strict, raw), len(raw))


async def run_parser(parse: Callable[[], Parsed], size: int) -> Parsed:
    """Parse a small text at once, and a large one in a thread."""
    if size <= LARGE_BYTES:
        return parse()
    return await asyncio.get_running_loop().run_in_executor(_parsers, parse)


def parse_strict(raw: bytes) -> Any:
    """Parse one JSON text. Raises BadJson with the reason and, if known, the position."""
    if raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise BadJson("It must not begin with a byte order mark.")
    _check_encoding(raw)
    spans = _check_shape(raw)
    if len(raw) <= LARGE_BYTES or not spans:
        return _parse_whole(raw)
    return _parse_in_parts(raw, spans)


def _parse_whole(raw: bytes) -> Any:
    try:
        value = _loads(raw, _refuse_constant)
    except json.JSONDecodeError as error:
        raise BadJson(f"{error.msg} at line {error.lineno} column {error.colno}.") from error
    if b"\\u" in raw:
        _check_text(value, "$")
    return value


def _parse_in_parts(raw: bytes, spans: list[tuple[int, int]]) -> Any:
    """Parse with a constant in place of each long string. The parser requests constants in the order of the text, so
    each string gets its own position, and a constant that the client sent is one too many."""
    parts: list[bytes] = []
    after = 0
    for begin, end in spans:
        parts += (raw[after:begin], b"Infinity")
        after = end
    skeleton = b"".join([*parts, raw[after:]])
    texts = iter([_read_string(raw, begin + 1, end - 1) for begin, end in spans])

    def take_next(name: str) -> str:
        text = next(texts, None) if name == "Infinity" else None
        if text is None:
            _refuse_constant(name)
        return text

    try:
        value = _loads(skeleton, take_next)
    except json.JSONDecodeError as error:
        raise BadJson(f"{error.msg}.") from error
    if b"\\u" in skeleton:
        _check_text(value, "$")
    return value


def _loads(raw: bytes, parse_constant: Any) -> Any:
    return json.loads(
        raw.decode(),
        object_pairs_hook=_unique,
        parse_constant=parse_constant,
        parse_int=_parse_int,
        parse_float=_parse_float,
    )


def _read_string(raw: bytes, begin: int, end: int) -> str:
    """Decode the text of a string between its quotes, in pieces."""
    pieces: list[str] = []
    decoder = codecs.getincrementaldecoder("utf-8")()
    at = begin
    while at < end:
        stop = cast(re.Match[bytes], _INSIDE.match(raw, at, min(end, at + _PIECE_BYTES))).end()
        if stop == at:
            raise BadJson(f"Invalid escape at byte {at}.")
        try:
            piece = cast(str, json.loads(f'"{decoder.decode(raw[at:stop])}"'))
        except json.JSONDecodeError as error:
            raise BadJson(f"{error.msg} in the string at byte {begin}.") from error
        if pieces and pieces[-1] and "\ud800" <= pieces[-1][-1:] <= "\udbff" and "\udc00" <= piece[:1] <= "\udfff":
            # A surrogate pair written as two escapes, one in each piece.
            pair = (pieces[-1][-1] + piece[0]).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
            pieces[-1], piece = pieces[-1][:-1] + pair, piece[1:]
        pieces.append(piece)
        at = stop
    for piece in pieces:
        _check_string(piece, f"The string at byte {begin}")
    return "".join(pieces)


def _check_encoding(raw: bytes) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for at in range(0, len(raw), LARGE_BYTES):
        pending = len(decoder.getstate()[0])
        try:
            decoder.decode(raw[at : at + LARGE_BYTES], final=at + LARGE_BYTES >= len(raw))
        except UnicodeDecodeError as error:
            raise BadJson(f"It is not UTF-8 at byte {at - pending + error.start}.") from error


def _check_shape(raw: bytes) -> list[tuple[int, int]]:
    """Raises BadJson for too many values or levels, and for keys that are too long. Returns the positions of the other
    long strings, including quotes."""
    long: list[tuple[int, int]] = []
    depth, count, at, size, keys = 0, 0, 0, len(raw), 0
    while True:
        while (end := cast(re.Match[bytes], _OUTSIDE.match(raw, at, at + _PIECE_BYTES)).end()) == at + _PIECE_BYTES:
            at = end
        at = end
        if at >= size:
            return long
        if count >= MAX_TOKENS:
            raise BadJson(f"It contains more than {MAX_TOKENS} values.")
        count += 1
        first = raw[at]
        if first == _QUOTE:
            begin, at = at, _find_quote(raw, at + 1) + 1
            if at - begin <= _LONG_BYTES:
                continue
            if _COLON.match(raw, at) is None:
                long.append((begin, at))
            elif at - begin > MAX_KEY_BYTES:
                raise BadJson(f"The key at byte {begin} is longer than {MAX_KEY_BYTES} bytes.")
            else:
                keys += at - begin
                if keys > MAX_LONG_KEYS_BYTES:
                    raise BadJson(f"Its long keys exceed {MAX_LONG_KEYS_BYTES} bytes in total.")
            continue
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise BadJson(f"It is nested deeper than {MAX_DEPTH} at byte {at}.")
        at += 1


def _find_quote(raw: bytes, begin: int) -> int:
    """The position of the closing quote of a string whose text starts at `begin`."""
    at = begin
    while True:
        stop = cast(re.Match[bytes], _INSIDE.match(raw, at, at + _PIECE_BYTES)).end()
        if stop < len(raw) and raw[stop] == _QUOTE:
            return stop
        if stop == at:
            what = "Invalid escape" if stop < len(raw) and raw[stop] == _BACKSLASH else "Unterminated string"
            raise BadJson(f"{what} at byte {begin - 1}.")
        at = stop


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadJson(f"The key {_shown(key)} appears twice.")
        found[key] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise BadJson(f"{name} is not JSON.")


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_NUMBER_CHARS or abs(int(digits)) > _MAX_INT:
        raise BadJson(f"The number {digits[:20]} is too large.")
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits) if len(digits) <= MAX_NUMBER_CHARS else float("inf")
    if value in (float("inf"), float("-inf")):
        raise BadJson(f"The number {digits[:20]} is too large.")
    return value


def _check_text(value: object, place: str) -> None:
    match value:
        case str():
            _check_string(value, place)
        case dict():
            for key, item in cast(dict[str, Any], value).items():
                _check_string(key, f"{place}.{_shown(key)}")
                _check_text(item, f"{place}.{_shown(key)}")
        case list():
            for index, item in enumerate(cast(list[Any], value)):
                _check_text(item, f"{place}[{index}]")
        case _:
            pass


def _check_string(text: str, place: str) -> None:
    if "\x00" in text:
        raise BadJson(f"{place} contains the character U+0000, which can't be stored.")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadJson(f"{place} contains a lone surrogate.") from error


def _shown(key: str) -> str:
    plain = key.isascii() and key.isidentifier() and len(key) <= 60
    return key if plain else ascii(key[:60])
