"""The contract of Objects as tests; a subclass or its module defines the fixtures `objects`, `alter` and `unreachable`.

`alter(key, data)` changes stored data without the driver; `unreachable` is a driver whose store is unreachable.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from everturn.core.errors import Invalid, NotFound, Unavailable
from everturn.files.model import exchange_key, manifest_key, object_key, preamble_key
from everturn.files.objects import CHUNK_BYTES, AlteredObject, Objects, StoredObject
from everturn_testing.core import SequentialIds

_MIB = 1024 * 1024

Alter = Callable[[str, bytes], None]

_DIGEST_OF_A = hashlib.sha256(b"a").hexdigest()


def key_of(data: bytes) -> str:
    """A key under which these bytes can be stored."""
    return object_key(SequentialIds().conversation(), hashlib.sha256(data).hexdigest())


async def read_all(chunks: AsyncIterator[bytes]) -> bytes:
    """The concatenated chunks."""
    return b"".join([chunk async for chunk in chunks])


class ReadingContract:
    """Reading from a store."""

    async def test_an_object_comes_back_as_it_was_stored(self, objects: Objects) -> None:
        for data in (b"", b"\x00\xff", b"x" * _MIB):
            await objects.save(key_of(data), data)
            await objects.save(key_of(data), data)

            assert await objects.load(key_of(data), max_bytes=_MIB) == data
            assert await read_all(objects.load_stream(key_of(data))) == data

    async def test_an_object_above_the_cap_is_not_loaded(self, objects: Objects) -> None:
        await objects.save(key_of(b"12345"), b"12345")

        with pytest.raises(Invalid):
            await objects.load(key_of(b"12345"), max_bytes=4)

    async def test_a_range_comes_in_small_chunks(self, objects: Objects) -> None:
        data = bytes(range(256)) * 4096
        await objects.save(key_of(data), data)

        chunks = [chunk async for chunk in objects.load_range(key_of(data), start=10, end=_MIB - 10)]

        assert b"".join(chunks) == data[10 : _MIB - 10]
        assert max(map(len, chunks)) <= CHUNK_BYTES

    @pytest.mark.parametrize(("start", "end", "wanted"), [(0, 1, b"0"), (3, 99, b"34"), (5, 9, b""), (2, 2, b"")])
    async def test_a_range_ends_where_the_object_ends(
        self, objects: Objects, start: int, end: int, wanted: bytes
    ) -> None:
        await objects.save(key_of(b"01234"), b"01234")

        assert await read_all(objects.load_range(key_of(b"01234"), start=start, end=end)) == wanted

    async def test_a_whole_object_comes_in_small_chunks(self, objects: Objects) -> None:
        data = bytes(range(256)) * 4096
        await objects.save(key_of(data), data)

        chunks = [chunk async for chunk in objects.load_stream(key_of(data))]

        assert b"".join(chunks) == data
        assert max(map(len, chunks)) <= CHUNK_BYTES

    @pytest.mark.parametrize("change", [b"", b"xxxx", b"dat", b"data and more"])
    async def test_an_altered_object_is_never_read_whole(self, objects: Objects, alter: Alter, change: bytes) -> None:
        await objects.save(key_of(b"data"), b"data")
        alter(key_of(b"data"), change)

        with pytest.raises(AlteredObject):
            await objects.load(key_of(b"data"), max_bytes=100)
        with pytest.raises(AlteredObject):
            await anext(aiter(objects.load_stream(key_of(b"data"))))

    async def test_the_end_of_an_altered_object_is_not_delivered(self, objects: Objects, alter: Alter) -> None:
        data = bytes(range(256)) * 4096
        await objects.save(key_of(data), data)
        alter(key_of(data), data[:-1] + b"!")
        came = 0

        with pytest.raises(AlteredObject):
            async for chunk in objects.load_stream(key_of(data)):
                came += len(chunk)

        assert came < len(data)

    async def test_what_was_never_stored_is_not_found(self, objects: Objects) -> None:
        with pytest.raises(NotFound):
            await objects.load(key_of(b"nothing"), max_bytes=10)
        with pytest.raises(NotFound):
            await anext(aiter(objects.load_range(key_of(b"nothing"), start=0, end=1)))
        with pytest.raises(NotFound):
            await anext(aiter(objects.load_stream(key_of(b"nothing"))))

    async def test_an_unreachable_store_is_unavailable(self, unreachable: Objects) -> None:
        key = key_of(b"a")

        with pytest.raises(Unavailable):
            await unreachable.save(key, b"a")
        with pytest.raises(Unavailable):
            await unreachable.load_page()
        with pytest.raises(Unavailable):
            await unreachable.load_page(f"{key.partition('/')[0]}/")
        with pytest.raises(Unavailable):
            await unreachable.check()


class KeepingContract:
    """Storing, listing and deleting."""

    async def test_deleting_counts_what_was_there(self, objects: Objects) -> None:
        await objects.save(key_of(b"a"), b"a")

        assert await objects.delete((key_of(b"a"), key_of(b"b"))) == 1

        with pytest.raises(NotFound):
            await objects.load(key_of(b"a"), max_bytes=10)

    async def test_a_manifest_can_be_overwritten(self, objects: Objects) -> None:
        key = manifest_key(SequentialIds().conversation(), SequentialIds().turn(), 1)

        for data in (b"{}", b'{"round":1}'):
            await objects.save(key, data)
            assert await objects.load(key, max_bytes=100) == data

        assert await objects.delete([key, key]) == 1

    async def test_the_beginnings_of_requests_are_kept_beside_the_manifests(self, objects: Objects) -> None:
        ids = SequentialIds()
        key = preamble_key(ids.conversation(), ids.turn(), _DIGEST_OF_A)

        await objects.save(key, b"{}")

        assert await objects.load(key, max_bytes=10) == b"{}"

    async def test_a_store_that_can_be_written_passes_the_check(self, objects: Objects) -> None:
        await objects.check()

    async def test_kept_objects_of_a_conversation_are_not_deleted(self, objects: Objects) -> None:
        conversation = SequentialIds().conversation()
        kept, other = (object_key(conversation, hashlib.sha256(data).hexdigest()) for data in (b"a", b"b"))
        await objects.save(kept, b"a")
        await objects.save(other, b"b")

        assert await objects.delete_conversation(conversation, keep={kept}) == 1

        assert await objects.load(kept, max_bytes=10) == b"a"

    async def test_a_conversation_is_emptied_and_no_other(self, objects: Objects) -> None:
        ids = SequentialIds()
        mine, other, turn = ids.conversation(), ids.conversation(), ids.turn()
        digest = hashlib.sha256(b"a").hexdigest()
        for conversation in (mine, other):
            await objects.save(object_key(conversation, digest), b"a")
            await objects.save(manifest_key(conversation, turn, 1), b"{}")
            await objects.save(exchange_key(conversation, turn, "exec_1", 1), b"{}")

        assert await objects.delete_conversation(mine) == 3
        assert await objects.delete_conversation(mine) == 0

        for key in (object_key(mine, digest), manifest_key(mine, turn, 1), exchange_key(mine, turn, "exec_1", 1)):
            with pytest.raises(NotFound):
                await objects.load(key, max_bytes=10)
        assert await objects.load(object_key(other, digest), max_bytes=10) == b"a"
        assert await objects.load(manifest_key(other, turn, 1), max_bytes=10) == b"{}"

    async def test_a_listing_has_all_objects_in_order_page_by_page(self, objects: Objects) -> None:
        ids = SequentialIds()
        first, second, turn = ids.conversation(), ids.conversation(), ids.turn()
        digests = sorted(hashlib.sha256(data).hexdigest() for data in (b"a", b"b"))
        keys = [object_key(each, digest) for each in (first, second) for digest in digests]
        keys += [manifest_key(first, turn, 1), exchange_key(first, turn, "exec_1", 1)]
        for key in keys:
            await objects.save(key, b"{}" if "manifests" in key else b"a" if key.endswith(_DIGEST_OF_A) else b"b")

        listed = await _list_all(objects, limit=2)

        assert [found.key for found in listed] == sorted(keys)
        assert {found.size for found in listed} == {1, 2}
        assert all(found.modified_at.tzinfo is not None for found in listed)

    async def test_a_listing_can_be_of_one_conversation(self, objects: Objects) -> None:
        ids = SequentialIds()
        mine, other = object_key(ids.conversation(), _DIGEST_OF_A), object_key(ids.conversation(), _DIGEST_OF_A)
        await objects.save(mine, b"a")
        await objects.save(other, b"a")

        page = await objects.load_page(mine.partition("/")[0] + "/")

        assert ([found.key for found in page.objects], page.next_cursor) == ([mine], None)
        assert (await objects.load_page("conv_none/")).objects == ()

    async def test_a_prefix_can_end_anywhere_in_a_key(self, objects: Objects) -> None:
        ids = SequentialIds()
        mine, other, turn = ids.conversation(), ids.conversation(), ids.turn()
        keys = sorted([object_key(mine, _DIGEST_OF_A), manifest_key(mine, turn, 1), object_key(other, _DIGEST_OF_A)])
        for key in keys:
            await objects.save(key, b"a")

        for prefix in {key[:size] for key in keys for size in range(len(key) + 1)}:
            page = await objects.load_page(prefix)
            assert [found.key for found in page.objects] == [key for key in keys if key.startswith(prefix)]
        assert (await objects.load_page(f"{mine}/manifests/", cursor=keys[-1])).objects == ()

    @pytest.mark.parametrize("limit", [0, -1, 1_001])
    async def test_a_page_has_a_bound(self, objects: Objects, limit: int) -> None:
        with pytest.raises(Invalid):
            await objects.load_page(limit=limit)


class ObjectsContract(ReadingContract, KeepingContract):
    """Required of every Objects."""


async def _list_all(objects: Objects, *, limit: int) -> Sequence[StoredObject]:
    page = await objects.load_page(limit=limit)
    found = list(page.objects)
    while page.next_cursor is not None:
        page = await objects.load_page(cursor=page.next_cursor, limit=limit)
        assert len(page.objects) <= limit
        found += page.objects
    return found
