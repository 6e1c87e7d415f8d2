"""The engine's combined stream, separated for any pieces, and the streams of an attached container."""

import asyncio
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_supervisor.broker.docker_stdio import STDERR_TAIL_BYTES, AttachedStdio, Demux, StreamMixed


def said(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(data)) + data


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=8),
    st.lists(st.integers(1, 30), max_size=40),
)
def test_the_two_streams_come_apart_however_the_bytes_are_cut(words: list[tuple[int, bytes]], cuts: list[int]):
    stream = b"".join(said(number, data) for number, data in words)
    demux, out = Demux(), b""

    for size in cuts:
        out += demux.feed(stream[:size])
        stream = stream[size:]
    out += demux.feed(stream)

    assert out == b"".join(data for number, data in words if number == 1)
    assert demux.errors == b"".join(data for number, data in words if number == 2)


def test_only_the_end_of_stderr_is_kept():
    demux = Demux()

    out = demux.feed(said(2, b"a" * 10_000) + said(2, b"the end"))

    assert out == b""
    assert len(demux.errors) == STDERR_TAIL_BYTES
    assert demux.errors.endswith(b"the end")


def test_an_invalid_stream_format_is_refused():
    with pytest.raises(StreamMixed):
        Demux().feed(b"HTTP/1.1 500 Internal Server Error")


async def attached() -> tuple[AttachedStdio, asyncio.StreamReader, asyncio.StreamWriter]:
    ours, engines = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=engines)
    return AttachedStdio(*await asyncio.open_connection(sock=ours)), reader, writer


async def test_reading_gives_stdout_until_its_end():
    stdio, _, engine = await attached()

    engine.write(said(2, b"a warning") + said(1, b"one"))
    first = await stdio.read()
    engine.write(said(1, b"two"))
    engine.close()

    assert (first, await stdio.read(), await stdio.read()) == (b"one", b"two", b"")
    assert stdio.errors == "a warning"


async def test_a_stream_that_is_not_the_engines_reads_as_its_end():
    stdio, _, engine = await attached()
    engine.write(b"x" * 8)

    assert await stdio.read() == b""
    engine.close()


async def test_closing_stdin_leaves_the_other_direction_open():
    stdio, from_us, engine = await attached()

    stdio.write(b"last words")
    stdio.close_input()
    stdio.close_input()
    heard = await from_us.read()
    engine.write(said(1, b"goodbye"))

    assert heard == b"last words"
    assert await stdio.read() == b"goodbye"
    stdio.close()
    engine.close()


async def test_detaching_ends_both_directions():
    stdio, from_us, engine = await attached()

    stdio.close()

    assert await from_us.read() == b""
    assert await stdio.read() == b""
    stdio.close_input()
    engine.close()
