"""Frames: every cut of a stream gives the same frames, and nothing a peer sends does worse than a FrameError."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.execution.framing import FrameDecoder, FrameError, FrameStream, decode_message, encode_frame, encode_raw

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.text(max_size=8).filter(lambda key: key != "$bytes")
VALUES = st.recursive(
    SCALARS | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.dictionaries(KEYS, VALUES, max_size=4)


@given(st.lists(MESSAGES | st.binary(max_size=50), max_size=6), st.data())
def test_every_cut_of_a_stream_gives_the_same_frames(frames, data):
    stream = b"".join(encode_raw(frame) if isinstance(frame, bytes) else encode_frame(frame) for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder = FrameDecoder(allow_raw=True)

    received = [
        frame
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for frame in decoder.feed(stream[start:end])
    ]

    assert received == frames
    assert not decoder.mid_frame


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_give_frames_or_an_error_within_bounds(pieces):
    decoder = FrameDecoder(max_bytes=16, allow_raw=True)

    try:
        for piece in pieces:
            for frame in decoder.feed(piece):
                assert isinstance(frame, (bytes, dict))
    except FrameError:
        return

    assert len(decoder._pending) <= 16 + 4


def frame_of(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (struct.pack(">I", 101), "too_large"),
        (struct.pack(">I", 100 << 20) + b"{", "too_large"),
        (struct.pack(">I", 0x80000001) + b"x", "raw_not_allowed"),
        (frame_of(b"{x}"), "not_json"),
        (frame_of(b"\xff\xfe"), "not_json"),
        (frame_of(b'{"a":NaN}'), "not_json"),
        (frame_of(b'{"a":Infinity}'), "not_json"),
        (frame_of(b"[]"), "not_an_object"),
        (frame_of(b"7"), "not_an_object"),
        (frame_of(b'{"$bytes":"AA=="}'), "not_an_object"),
        (frame_of(b'{"a":{"$bytes":"*"}}'), "bad_bytes"),
        (frame_of(b'{"a":{"$bytes":1}}'), "bad_bytes"),
        (frame_of(b'{"a":{"$bytes":"","b":1}}'), "bad_bytes"),
    ],
)
def test_an_invalid_frame_has_an_error_code(data, code):
    with pytest.raises(FrameError) as raised:
        FrameDecoder(max_bytes=100).feed(data)

    assert raised.value.code == code


@pytest.mark.parametrize("depth", [100, 5000, 200_000])
def test_deep_nesting_is_refused(depth):
    with pytest.raises(FrameError) as raised:
        decode_message(b'{"a":' + b"[" * depth + b"]" * depth + b"}")

    assert raised.value.code == "too_deep"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"a": {1, 2}}, "not_sendable"),
        ({"a": float("nan")}, "not_sendable"),
        ({"a": {1: 2}}, "not_sendable"),
        ({"a": {"$bytes": "AA=="}}, "not_sendable"),
        ({"a": "x" * 200}, "too_large"),
    ],
)
def test_an_unsendable_value_has_an_error_code(message, code):
    with pytest.raises(FrameError) as raised:
        encode_frame(message, max_bytes=100)

    assert raised.value.code == code


def test_a_structure_that_holds_itself_is_refused():
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(FrameError) as raised:
        encode_frame({"a": endless})

    assert raised.value.code == "too_deep"


def test_bytes_travel_as_tagged_base64():
    frame = encode_frame({"a": [b"\x00\xff"]})

    assert json.loads(frame[4:]) == {"a": [{"$bytes": "AP8="}]}


class Peer:
    """Both halves of a stream over one list of pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.written = b""

    async def read(self, n: int) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        return


async def test_a_stream_hands_over_frames_one_by_one_and_none_at_its_end():
    two = encode_frame({"n": 1}) + encode_frame({"n": 2})
    peer = Peer([two[:5], two[5:], b"\x00\x00"])
    stream = FrameStream(peer, peer, FrameDecoder())

    received = [await stream.receive(), stream.try_receive(), stream.try_receive(), await stream.receive()]

    assert received == [{"n": 1}, {"n": 2}, None, None]
    assert stream.mid_frame


async def test_a_stream_sends_messages_and_raw_bytes():
    peer = Peer([])
    stream = FrameStream(peer, peer, FrameDecoder())

    await stream.send({"n": 1})
    await stream.send_raw(b"abc")

    assert FrameDecoder(allow_raw=True).feed(peer.written) == [{"n": 1}, b"abc"]


@given(st.integers(0, 2), st.data())
def test_frames_before_a_wrong_byte_arrive_however_the_stream_is_cut(count, data):
    stream = encode_frame({"n": 1}) * count + b"\xff" * 8
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    decoder = FrameDecoder()
    received = []

    with pytest.raises(FrameError):
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            received += decoder.feed(stream[start:end])
        decoder.check()

    assert received == [{"n": 1}] * count
