"""Decompressing the bodies of HTTP replies."""

import asyncio
import zlib
from collections.abc import AsyncIterator

import pytest

from everturn.core.http_bodies import MAX_PIECE_BYTES, PIECES_AT_ONCE, UnreadableBody, unpack


async def body(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize("extra_bytes", [-1, 0, 1, 100])
async def test_all_output_is_read_before_the_end_of_compressed_data_is_missed(extra_bytes: int) -> None:
    """The last chunk fills a piece exactly, and the decompressor still holds output."""
    whole = b"x" * (4 * MAX_PIECE_BYTES + extra_bytes)
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(whole) + packer.flush(zlib.Z_SYNC_FLUSH)
    pieces: list[bytes] = []

    with pytest.raises(UnreadableBody, match="ended before its compressed data") as caught:
        async for piece in unpack(body(packed), "gzip"):
            pieces.append(piece)

    assert caught.value.is_damaged
    assert b"".join(pieces) == whole
    assert max(map(len, pieces)) <= MAX_PIECE_BYTES


@pytest.mark.parametrize("chunks", [(), (b"",)])
async def test_a_reply_without_content_can_name_an_encoding(chunks: tuple[bytes, ...]) -> None:
    assert [piece async for piece in unpack(body(*chunks), "gzip")] == []


async def test_the_event_loop_has_turns_between_pieces_that_are_there_already() -> None:
    turns, waits = 0, asyncio.Event()

    async def count_turns() -> None:
        nonlocal turns
        while not waits.is_set():
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(count_turns())
        assert len([piece async for piece in unpack(body(*[b"x"] * 10 * PIECES_AT_ONCE), "identity")]) == 320
        waits.set()
    assert turns == 10
