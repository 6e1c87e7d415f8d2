"""Bounds the size of a provider's HTTP replies, below the SDKs, which read whole events and errors into memory, and
keeps what the SDKs read from the environment out of the requests to an operator's endpoint.

An SDK copies an unfinished event again with every chunk or line of it, and decodes it on the event loop: 80 MB without
an end, or a small gzip stream that unpacks to them, once blocked a worker for so long that it lost the leases of all
its turns.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final

import httpx2

from chat_proc.models.endpoints import Server
from chat_proc.models.replies import try_build_error_object
from chat_proc.models.streams import REPLY_TIMEOUT_S, TimeSlice, report_bytes
from everturn.core import http_bodies
from everturn.core.http_bodies import EventHooks, Pieces, UnreadableBody
from everturn.models.port import ModelFailed

TIMEOUT = httpx2.Timeout(REPLY_TIMEOUT_S, connect=5.0)
"""For the clients of the SDKs, whose own limit of 600 s is shorter than an endpoint's can be. `retry.py` has others."""
MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Limit of one event of a stream, or of another successful reply: four times the limit of a whole ASCII reply."""
MAX_SEARCHED_BYTES = 64 * 1024
"""Limit of a JSON reply that is searched for an error: parsing takes less than 1 ms."""
MAX_COPIED_BYTES = 256 * 1024 * 1024
"""Limit of the size of one event times its lines: Anthropic's SDK copies the event read so far once for each line. At
this limit that takes about 50 ms. An event of a provider has two or three lines."""

MAX_EVENTS_AT_ONCE = 16
"""Events that an SDK gets before other tasks can run: it parses a small one in about 0.1 ms."""

_COMPLETION = b'"choices"'
"""The type of a whole reply of Chat Completions, which some servers send in place of a stream."""
_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_LONGEST_END = 4
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r){2}")
"""Also matches mixed line ends, which no provider writes."""
_HAS_DATA = re.compile(rb"(?:\A|[\r\n])data:[ \t]*[^ \t\r\n]")
_HAS_ERROR = re.compile(rb"(?:\A|[\r\n])error:[ \t]*([^\r\n]+)")
"""An error as llama.cpp sent it before it used `data` for that: as a field that the standard does not know."""
_SPACES = bytes.maketrans(b"\r\n", b"  ")
"""JSON has line breaks only where it can also have spaces."""
_END_MARK: Final = "everturn_end_mark"
"""The extension of a response whose end mark was read."""
_PROTOCOL_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "anthropic-version",
        "connection",
        "content-length",
        "content-type",
        "transfer-encoding",
    }
)
"""The headers of an SDK that an endpoint is sent. Others can come from variables such as `OPENAI_ORG_ID` and
`ANTHROPIC_CUSTOM_HEADERS`, which are meant for the provider's own server."""


def build_event_hooks(server: Server | None = None, *, max_bytes: int | None = None) -> EventHooks:
    """Hooks for the HTTP client of an SDK, which calls this endpoint, or its provider if there is none.

    `max_bytes` bounds a whole reply instead of each of its events.
    """

    def check(pieces: Pieces, response: httpx2.Response) -> Pieces:
        return _check_reply(pieces, response) if max_bytes is None else http_bodies.check_size(pieces, max_bytes)

    hooks = http_bodies.build_event_hooks(check, _translate)
    if server is not None:
        hooks["request"].append(_build_header_filter(server))
    return hooks


def has_end_mark(response: httpx2.Response) -> bool:
    """Whether `[DONE]` was read, with which OpenAI's API ends a stream. Its SDK does not say so."""
    return _END_MARK in response.extensions


def _build_header_filter(server: Server) -> Callable[[httpx2.Request], Awaitable[None]]:
    """A hook that leaves a request only what the endpoint must know: the protocol's headers and its own key."""

    async def filter_headers(request: httpx2.Request) -> None:
        kept = {name: value for name, value in request.headers.items() if name in _PROTOCOL_HEADERS}
        if server.api_key is not None:
            kept["Authorization"] = f"Bearer {server.api_key}"
        kept |= {"Host": request.url.netloc.decode("ascii"), "User-Agent": "Everturn/1.0"}
        request.headers = httpx2.Headers(kept)

    return filter_headers


def _check_reply(pieces: Pieces, response: httpx2.Response) -> Pieces:
    pieces = _report_bytes(pieces)
    content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if content_type == "application/vnd.amazon.eventstream":
        return _check_frames(pieces)
    pieces = _check_events(pieces)
    if content_type != "text/event-stream":
        # Servers send JSON, and also events, as other types.
        pieces = _read_json(pieces, response.headers)
    return _clean_events(pieces, response)


async def _report_bytes(pieces: Pieces) -> AsyncGenerator[bytes, None]:
    async with aclosing(pieces):
        async for piece in pieces:
            report_bytes.get()()
            yield piece


def _translate(error: UnreadableBody) -> ModelFailed:
    return ModelFailed(error.detail, kind="invalid_reply", retryable=error.is_damaged, provider_text=error.cause)


async def _check_events(pieces: Pieces) -> AsyncGenerator[bytes, None]:
    """Yield all pieces. Raises ModelFailed for an event that is too long or has too many lines."""
    size, lines, before = 0, 0, b""
    async with aclosing(pieces):
        async for piece in pieces:
            seen = before + piece
            ends = [(seen.find(end) + len(end), seen.rfind(end) + len(end)) for end in _EVENT_ENDS if end in seen]
            rest = seen[len(before) : min(ends)[0]] if ends else piece
            size, lines = size + len(rest), lines + _count_breaks(rest)
            _check_event(size, lines)
            if ends:
                rest = seen[max(last for _, last in ends) :]
                size, lines = len(rest), _count_breaks(rest)
                _check_event(size, lines)
            before = seen[-(_LONGEST_END - 1) :]
            yield piece


async def _check_frames(pieces: Pieces) -> AsyncGenerator[bytes, None]:
    """Yield all pieces of an AWS event stream, whose frames begin with their length in four bytes. Raises ModelFailed
    for a frame that is too long: the SDK would read 24 MiB, and copy what it has read so far with every piece."""
    head, rest = b"", 0
    async with aclosing(pieces):
        async for piece in pieces:
            at = 0
            while at < len(piece):
                if rest:
                    skipped = min(rest, len(piece) - at)
                    rest -= skipped
                    at += skipped
                    continue
                read = piece[at : at + 4 - len(head)]
                head, at = head + read, at + len(read)
                if len(head) == 4:
                    _check_event(int.from_bytes(head), 0)
                    head, rest = b"", max(0, int.from_bytes(head) - 4)
            yield piece


async def _read_json(pieces: Pieces, headers: httpx2.Headers) -> AsyncGenerator[bytes, None]:
    """What may be JSON: all pieces, but a whole completion as one event. Raises ModelFailed if it is an error: some
    gateways send it with status 200. Events are not held back."""
    body = bytearray()
    is_json = True
    async with aclosing(pieces):
        async for piece in pieces:
            if not is_json:
                yield piece
                continue
            # A server can send empty lines while the model writes.
            body += piece if body else piece.lstrip()
            is_json = bytes(body[:1]) in (b"", b"{", b"[") and len(body) <= MAX_EVENT_BYTES
            if not is_json:
                yield bytes(body)
    if not is_json:
        return
    if len(body) <= MAX_SEARCHED_BYTES and (failure := try_build_error_object(bytes(body), headers, datetime.now(UTC))):
        raise failure
    yield b"data: " + body.translate(_SPACES) + b"\n\n" if _COMPLETION in body else bytes(body)


def _count_breaks(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r")


def _check_event(size: int, lines: int) -> None:
    """`lines` of `size` bytes were read without the end of an event."""
    if size > MAX_EVENT_BYTES:
        raise ModelFailed(
            f"The model's server sent more than {MAX_EVENT_BYTES // 1024**2} MiB without the end of an event.",
            kind="reply_too_long",
        )
    if size * lines > MAX_COPIED_BYTES:
        raise ModelFailed("The model's server sent too many lines without the end of an event.", kind="reply_too_long")


async def _clean_events(pieces: Pieces, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """Yield whole events, a few at once because an SDK parses each on the event loop, and the rest at the end. Notes
    their end mark in the response."""
    held = bytearray()
    time_slice = TimeSlice()
    async with aclosing(pieces):
        async for piece in pieces:
            offset = max(0, len(held) - (_LONGEST_END - 1))
            window = bytes(held[offset:]) + piece
            held += piece
            begin, cleaned = 0, list[bytes]()
            for end in _EVENT_END.finditer(window):
                if event := _clean_event(bytes(held[begin : offset + end.start()])):
                    cleaned.append(event)
                    _note_end_mark(event, response)
                begin = offset + end.end()
                if len(cleaned) == MAX_EVENTS_AT_ONCE:
                    yield b"".join(cleaned)
                    cleaned.clear()
                await time_slice.give_way()
            del held[:begin]
            if cleaned:
                yield b"".join(cleaned)
            await time_slice.give_way()
    if rest := _replace_invalid_bytes(held.lstrip(b"\r\n")):
        _note_end_mark(rest, response)
        yield rest


def _note_end_mark(event: bytes, response: httpx2.Response) -> None:
    if (data := _HAS_DATA.search(event)) and event.startswith(b"[DONE]", data.end() - 1):
        response.extensions[_END_MARK] = True


def _clean_event(event: bytes) -> bytes:
    """An event as the SDKs can read it; empty without data. An event with only `retry`, `id`, `event` or comments is
    dropped, as the standard requires: OpenAI's SDK would parse its empty data as JSON, also at each empty line after an
    `id`. An error in a field of its own becomes data."""
    if _HAS_DATA.search(event):
        # The SDK would treat empty lines between events as events.
        return _replace_invalid_bytes(event.strip(b"\r\n")) + b"\n\n"
    if error := _HAS_ERROR.search(event):
        return b'data: {"error": ' + _replace_invalid_bytes(error[1]) + b"}\n\n"
    return b""


def _replace_invalid_bytes(data: bytes | bytearray) -> bytes:
    """With U+FFFD for what is not UTF-8: the SDKs would fail. No character is split, because these are whole events."""
    return data.decode("utf-8", "replace").encode()
