"""Decompressing the bodies of HTTP replies."""

import zlib
from collections.abc import AsyncIterator

import pytest

from everturn.core.http_bodies import MAX_PIECE_BYTES, unpack


@pytest.mark.parametrize("extra_bytes", [-1, 0, 1, 100])
async def test_a_body_is_whole_even_if_its_compressed_data_has_no_end(extra_bytes: int) -> None:
    """The last chunk fills a piece exactly, and the decompressor still holds output."""
    whole = b"x" * (4 * MAX_PIECE_BYTES + extra_bytes)
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(whole) + packer.flush(zlib.Z_SYNC_FLUSH)

    async def body() -> AsyncIterator[bytes]:
        yield packed

    pieces = [piece async for piece in unpack(body(), "gzip")]

    assert b"".join(pieces) == whole
    assert max(map(len, pieces)) <= MAX_PIECE_BYTES
