"""The contract of Objects as tests; a subclass or its module defines the fixture `objects`."""

import hashlib

import pytest

from everturn.errors import Invalid, NotFound
from everturn.model.artifacts import manifest_key, object_key
from everturn.ports.objects import Objects
from everturn.testing.sequential_ids import SequentialIds

_MIB = 1024 * 1024


def key_of(data: bytes) -> str:
    """A key under which these bytes may be stored."""
    return object_key(SequentialIds().conversation(), hashlib.sha256(data).hexdigest())


class ObjectsContract:
    """What every Objects keeps."""

    async def test_an_object_comes_back_as_it_was_stored(self, objects: Objects) -> None:
        for data in (b"", b"\x00\xff", b"x" * _MIB):
            await objects.save(key_of(data), data)
            await objects.save(key_of(data), data)

            assert await objects.load(key_of(data), max_bytes=_MIB) == data

    async def test_an_object_above_the_cap_is_not_loaded(self, objects: Objects) -> None:
        await objects.save(key_of(b"12345"), b"12345")

        with pytest.raises(Invalid):
            await objects.load(key_of(b"12345"), max_bytes=4)

    async def test_a_range_comes_in_small_chunks(self, objects: Objects) -> None:
        data = bytes(range(256)) * 4096
        await objects.save(key_of(data), data)

        chunks = [chunk async for chunk in objects.load_range(key_of(data), start=10, end=_MIB - 10)]

        assert b"".join(chunks) == data[10 : _MIB - 10]
        assert max(map(len, chunks)) <= 256 * 1024

    async def test_what_was_never_stored_is_not_found(self, objects: Objects) -> None:
        with pytest.raises(NotFound):
            await objects.load(key_of(b"nothing"), max_bytes=10)
        with pytest.raises(NotFound):
            await anext(aiter(objects.load_range(key_of(b"nothing"), start=0, end=1)))

    async def test_deleting_counts_what_was_there(self, objects: Objects) -> None:
        await objects.save(key_of(b"a"), b"a")

        assert await objects.delete((key_of(b"a"), key_of(b"b"))) == 1

        with pytest.raises(NotFound):
            await objects.load(key_of(b"a"), max_bytes=10)

    async def test_a_manifest_may_be_written_anew(self, objects: Objects) -> None:
        key = manifest_key(SequentialIds().conversation(), SequentialIds().turn(), 1)

        for data in (b"{}", b'{"round":1}'):
            await objects.save(key, data)
            assert await objects.load(key, max_bytes=100) == data

        assert await objects.delete([key, key]) == 1

    async def test_a_store_that_can_be_written_passes_the_check(self, objects: Objects) -> None:
        await objects.check()

    async def test_a_conversation_is_emptied_and_no_other(self, objects: Objects) -> None:
        ids = SequentialIds()
        mine, other, turn = ids.conversation(), ids.conversation(), ids.turn()
        digest = hashlib.sha256(b"a").hexdigest()
        for conversation in (mine, other):
            await objects.save(object_key(conversation, digest), b"a")
            await objects.save(manifest_key(conversation, turn, 1), b"{}")

        assert await objects.delete_conversation(mine) == 2
        assert await objects.delete_conversation(mine) == 0

        for key in (object_key(mine, digest), manifest_key(mine, turn, 1)):
            with pytest.raises(NotFound):
                await objects.load(key, max_bytes=10)
        assert await objects.load(object_key(other, digest), max_bytes=10) == b"a"
        assert await objects.load(manifest_key(other, turn, 1), max_bytes=10) == b"{}"
