"""Reads the usage out of a reply while it passes: from the events of a stream, or from one JSON body."""

import re
from dataclasses import replace
from functools import partial
from typing import Final

from chat_proc.model_gateway.formats import Api, RequestRefused, parse_object
from chat_proc.models.replies import read_fields, try_read_count
from chat_proc.models.streams import TimeSlice
from everturn.core.threads import ON_LOOP_SIZE, call_sized
from everturn.models.port import ModelUsage
from everturn.models.tokens import FIRST_RATIO

MAX_HELD_BYTES: Final = 4 * 1024 * 1024
"""Of one event, or of a reply that is one JSON body. The usage in a longer one is not read, but estimated."""
_SLICE_BYTES: Final = 4 * 1024
"""Split at once: in the worst case, a line for each byte, that takes 4 ms."""
_USAGE: Final = b'"usage"'
_DELTA: Final = re.compile(
    rb'"(?:text|thinking|partial_json|content|reasoning_content|reasoning|arguments|delta|input)"\s*+:\s*+'
    rb'"((?>(?:[^"\\]++|\\.)*))"'
)
"""The strings in which replies carry what the model wrote."""


class EventSplitter:
    """Splits a stream of server-sent events, in pieces of any size, into the data of its events."""

    def __init__(self, max_bytes: int = MAX_HELD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._is_blank = True
        """Whether the line is empty so far. A line beyond the limit is not in `_line`."""
        self._data: list[bytes] = []
        self._size = 0
        self._after_return = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that end in this piece, without those that are longer than the limit."""
        if self._after_return and piece.startswith(b"\n"):
            piece, self._after_return = piece[1:], False
        if piece:
            self._after_return = piece.endswith(b"\r")
        ended: list[bytes] = []
        for line in piece.splitlines(keepends=True):
            text = line.rstrip(b"\r\n")
            self._size += len(text)
            self._is_blank = self._is_blank and not text
            if self._size <= self._max_bytes:
                self._line += text
            if len(text) < len(line):
                self._end_line(ended)
        return ended

    def finish(self) -> list[bytes]:
        """The data of an event whose end was not sent."""
        ended: list[bytes] = []
        self._end_line(ended)
        self._end_line(ended)
        return ended

    def _end_line(self, ended: list[bytes]) -> None:
        line, is_blank = bytes(self._line), self._is_blank
        self._line.clear()
        self._is_blank = True
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif is_blank:
            if self._data and self._size <= self._max_bytes:
                ended.append(b"\n".join(self._data))
            self._data, self._size = [], 0


class ReplyMeter:
    """What is known of the usage of one reply, which `feed` gets piece by piece."""

    def __init__(self, api: Api, *, is_stream: bool) -> None:
        self._api: Api = api
        self._splitter = EventSplitter() if is_stream else None
        self._body = bytearray()
        self._counted = ModelUsage()
        self._has_input = False
        self._has_output = False
        self._chars = 0
        """Bytes of what the model wrote, as JSON strings."""

    @property
    def has_content(self) -> bool:
        """Whether anything arrived that the provider charges for."""
        return bool(self._has_input or self._chars or self._body)

    async def feed(self, piece: bytes) -> None:
        if self._splitter is None:
            if len(self._body) <= MAX_HELD_BYTES:
                self._body += piece
            return
        time_slice = TimeSlice()
        for start in range(0, len(piece), _SLICE_BYTES):
            for data in self._splitter.feed(piece[start : start + _SLICE_BYTES]):
                await self._read_event(data)
            await time_slice.give_way()

    async def finish(self) -> None:
        """The reply has ended: read what has no end of its own."""
        if self._splitter is not None:
            for data in self._splitter.finish():
                await self._read_event(data)
        elif len(self._body) <= MAX_HELD_BYTES:
            await self._read(bytes(self._body))

    def build_usage(self, input_tokens: int) -> ModelUsage:
        """What the provider has counted. What it has not is estimated, from `input_tokens` and what was written."""
        if self._has_input and self._has_output:
            return self._counted
        counted = self._counted if self._has_input else ModelUsage(input_tokens=input_tokens)
        written = FIRST_RATIO.tokens_for(self._chars or len(self._body))
        return replace(counted, output_tokens=max(counted.output_tokens, written), estimated=True)

    async def _read_event(self, data: bytes) -> None:
        # Events at the end of a reply of the Responses API repeat what its deltas had.
        if self._api != "responses" or b".delta" in data[:200]:
            is_small = len(data) <= ON_LOOP_SIZE
            self._chars += sum(len(text) for text in _DELTA.findall(data)) if is_small else len(data)
        if _USAGE in data:
            await self._read(data)

    async def _read(self, data: bytes) -> None:
        try:
            value = await call_sized(len(data), partial(parse_object, data))
        except RequestRefused:
            return  # it is no JSON object, so it counts nothing
        match self._api:
            case "messages" | "count_tokens":
                self._read_anthropic(value)
            case "chat":
                self._read_chat(read_fields(value.get("usage")))
            case "responses":
                self._read_responses(read_fields(value.get("response", value)))

    def _read_anthropic(self, value: dict[str, object]) -> None:
        """Counts of a stream are cumulative, and the first output count covers no more than the first token."""
        kind = value.get("type")
        if kind not in ("message", "message_start", "message_delta"):
            return
        holder = read_fields(value.get("message")) if kind == "message_start" else value
        usage = read_fields(holder.get("usage"))
        before = self._counted
        read = _count(usage.get("cache_read_input_tokens"), before.cache_read_tokens)
        written = _count(usage.get("cache_creation_input_tokens"), before.cache_write_tokens)
        uncached = before.input_tokens - before.cache_read_tokens - before.cache_write_tokens
        sent = try_read_count(usage.get("input_tokens"))
        received = try_read_count(usage.get("output_tokens"))
        self._has_input = self._has_input or bool(sent or read or written)
        self._has_output = self._has_output or (received is not None and kind != "message_start")
        self._counted = ModelUsage(
            input_tokens=(uncached if sent is None else sent) + read + written,
            output_tokens=before.output_tokens if received is None else received,
            cache_read_tokens=read,
            cache_write_tokens=written,
        )

    def _read_chat(self, usage: object) -> None:
        fields = read_fields(usage)
        details = read_fields(fields.get("prompt_tokens_details"))
        sent, received = try_read_count(fields.get("prompt_tokens")), try_read_count(fields.get("completion_tokens"))
        if sent is None or received is None:
            return
        # Some servers count what the model thought in the total only, and have names of their own for what was cached.
        received = max(received, (try_read_count(fields.get("total_tokens")) or 0) - sent)
        cached = (details.get("cached_tokens"), fields.get("prompt_cache_hit_tokens"), fields.get("cached_tokens"))
        read = next((count for each in cached if (count := try_read_count(each))), 0)
        self._note(sent, received, read, _count(details.get("cache_write_tokens"), 0))

    def _read_responses(self, response: object) -> None:
        usage = read_fields(read_fields(response).get("usage"))
        sent, received = try_read_count(usage.get("input_tokens")), try_read_count(usage.get("output_tokens"))
        if sent is None or received is None:
            return
        details = read_fields(usage.get("input_tokens_details"))
        self._note(
            sent, received, _count(details.get("cached_tokens"), 0), _count(details.get("cache_write_tokens"), 0)
        )

    def _note(self, sent: int, received: int, read: int, written: int) -> None:
        self._has_input = self._has_output = True
        self._counted = ModelUsage(
            input_tokens=sent,
            output_tokens=received,
            cache_read_tokens=min(read, sent),
            cache_write_tokens=min(written, sent),
        )


def _count(value: object, otherwise: int) -> int:
    count = try_read_count(value)
    return otherwise if count is None else count
