"""Frames between the processes of a sandboxed run: u32 big endian length, then a JSON object; on pipes also raw bytes.

Standard library only and no input or output of its own: the executor runs where nothing else is installed.
"""

import base64
import binascii
import json
import struct
from collections.abc import Mapping
from typing import Final, Protocol, cast

DEFAULT_MAX_FRAME_BYTES: Final = 1 << 20
RAW_CHUNK_BYTES: Final = 64 << 10
BYTES_TAG: Final = "$bytes"
MAX_DEPTH: Final = 64

_RAW_BIT: Final = 0x8000_0000
_LENGTH: Final = struct.Struct(">I")

Message = dict[str, object]
Frame = Message | bytes


class FrameError(Exception):
    """What arrived, or was to be sent, is not a frame.

    `code` is one of too_large, not_json, not_an_object, raw_not_allowed, bad_bytes, not_sendable, too_deep.
    """

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code


class FrameDecoder:
    """Cuts a byte stream into frames; it buffers at most one unfinished frame of `max_bytes`.

    With `allow_raw` a length word with its top bit set announces raw bytes. Without, such a word is an oversized frame.
    After a FrameError the stream can't be used any more: close it.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_FRAME_BYTES, *, allow_raw: bool = False) -> None:
        if not 0 < max_bytes < _RAW_BIT:
            raise ValueError("max_bytes must be between 1 and 2**31 - 1")
        self._max_bytes = max_bytes
        self._allow_raw = allow_raw
        self._pending = bytearray()
        self._broken: FrameError | None = None

    @property
    def mid_frame(self) -> bool:
        """Whether bytes of an unfinished frame are buffered."""
        return bool(self._pending)

    def feed(self, data: bytes) -> list[Frame]:
        """Add the next bytes of the stream; returns the frames they complete, in order. Raises FrameError.

        Frames before the wrong byte are returned first, and the next call raises the error: so the result does not
        depend on how the stream is cut.
        """
        self.check()
        self._pending += data
        frames: list[Frame] = []
        try:
            while (frame := self._try_take()) is not None:
                frames.append(frame)
        except FrameError as error:
            self._broken = error
            if not frames:
                raise
        return frames

    def check(self) -> None:
        """Raise the FrameError caused by the bytes so far, if any."""
        if self._broken is not None:
            raise self._broken

    def _try_take(self) -> Frame | None:
        if len(self._pending) < _LENGTH.size:
            return None
        word: int = _LENGTH.unpack_from(self._pending)[0]
        raw, size = bool(word & _RAW_BIT), word & ~_RAW_BIT
        if raw and not self._allow_raw:
            raise FrameError("raw_not_allowed")
        if size > self._max_bytes:
            raise FrameError("too_large", f"{size} bytes, the limit is {self._max_bytes}")
        if len(self._pending) < _LENGTH.size + size:
            return None
        body = bytes(self._pending[_LENGTH.size : _LENGTH.size + size])
        del self._pending[: _LENGTH.size + size]
        return body if raw else decode_message(body)


def encode_frame(message: Mapping[str, object], max_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> bytes:
    """One JSON frame. Bytes anywhere inside become `{"$bytes": base64}`.

    Raises FrameError: not_sendable, too_large, too_deep.
    """
    try:
        body = json.dumps(_pack(message, MAX_DEPTH), separators=(",", ":"), allow_nan=False).encode("ascii")
    except (TypeError, ValueError) as error:
        raise FrameError("not_sendable", str(error)) from error
    if len(body) > max_bytes:
        raise FrameError("too_large", f"{len(body)} bytes, the limit is {max_bytes}")
    return _LENGTH.pack(len(body)) + body


def encode_raw(data: bytes) -> bytes:
    """One raw frame."""
    return _LENGTH.pack(_RAW_BIT | len(data)) + data


def decode_message(body: bytes) -> Message:
    """The JSON object in a frame's body, with tagged bytes decoded. Raises FrameError."""
    try:
        value: object = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise FrameError("too_deep") from error
    except ValueError as error:
        raise FrameError("not_json", str(error)) from error
    if not isinstance(value, dict):
        raise FrameError("not_an_object")
    unpacked = _unpack(cast("object", value), MAX_DEPTH)
    if not isinstance(unpacked, dict):
        raise FrameError("not_an_object")
    return cast("Message", unpacked)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _pack(value: object, depth: int) -> object:
    if depth == 0:
        raise FrameError("too_deep")
    if isinstance(value, (bytes, bytearray)):
        return {BYTES_TAG: base64.b64encode(value).decode("ascii")}
    if isinstance(value, Mapping):
        return _pack_mapping(cast("Mapping[object, object]", value), depth)
    if isinstance(value, (list, tuple)):
        return [_pack(item, depth - 1) for item in cast("list[object]", value)]
    return value


def _pack_mapping(mapping: Mapping[object, object], depth: int) -> dict[str, object]:
    packed: dict[str, object] = {}
    for key, item in mapping.items():
        if not isinstance(key, str):
            raise FrameError("not_sendable", f"keys must be text, not {type(key).__name__}")
        if key == BYTES_TAG:
            raise FrameError("not_sendable", f"the key {BYTES_TAG} is reserved for bytes")
        packed[key] = _pack(item, depth - 1)
    return packed


def _unpack(value: object, depth: int) -> object:
    if depth == 0:
        raise FrameError("too_deep")
    if isinstance(value, list):
        return [_unpack(item, depth - 1) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    mapping = cast("dict[str, object]", value)
    if BYTES_TAG in mapping:
        return _unpack_bytes(mapping)
    return {key: _unpack(item, depth - 1) for key, item in mapping.items()}


def _unpack_bytes(mapping: dict[str, object]) -> bytes:
    encoded = mapping[BYTES_TAG]
    if len(mapping) != 1 or not isinstance(encoded, str):
        raise FrameError("bad_bytes")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FrameError("bad_bytes", str(error)) from error


class ByteReader(Protocol):
    """The reading half of a stream; empty bytes mark its end."""

    async def read(self, n: int, /) -> bytes: ...


class ByteWriter(Protocol):
    """The writing half of a stream; `drain` waits until the peer has room."""

    def write(self, data: bytes, /) -> None: ...

    async def drain(self) -> None: ...


class FrameStream:
    """Frames over a pair of byte streams. Only one task can receive; any task can send, and frames are never
    interleaved."""

    def __init__(self, reader: ByteReader, writer: ByteWriter, decoder: FrameDecoder) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = decoder
        self._ready: list[Frame] = []

    @property
    def mid_frame(self) -> bool:
        """Whether the peer has begun a frame that it has not finished."""
        return self._decoder.mid_frame

    async def receive(self) -> Frame | None:
        """The next frame; None at the end of the stream (a frame cut off there is dropped). Raises FrameError."""
        while not self._ready:
            if not await self.read_more():
                return None
        return self._ready.pop(0)

    def try_receive(self) -> Frame | None:
        """A frame that has already arrived, otherwise None."""
        return self._ready.pop(0) if self._ready else None

    async def read_more(self) -> bool:
        """Wait for bytes; false at the end of the stream. Raises FrameError."""
        self._decoder.check()
        data = await self._reader.read(RAW_CHUNK_BYTES)
        self._ready.extend(self._decoder.feed(data))
        return bool(data)

    async def send(self, message: Mapping[str, object], max_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        """Send one JSON frame and wait until the peer has room. Raises FrameError before anything is written."""
        self._writer.write(encode_frame(message, max_bytes))
        await self._writer.drain()

    async def send_raw(self, data: bytes) -> None:
        """Send one raw frame and wait until the peer has room."""
        self._writer.write(encode_raw(data))
        await self._writer.drain()
