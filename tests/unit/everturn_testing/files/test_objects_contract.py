"""An object store that loses bytes breaks the contract."""

import pytest

from everturn.files.objects import AlteredObject
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.objects_contract import ObjectsContract, key_of


class Lossy(MemoryObjects):
    async def save(self, key: str, data: bytes) -> None:
        await super().save(key, data[:1000])


async def test_a_store_that_loses_bytes_is_noticed() -> None:
    with pytest.raises(AlteredObject):
        await ObjectsContract().test_an_object_comes_back_as_it_was_stored(Lossy())


def test_a_key_follows_from_the_bytes() -> None:
    assert key_of(b"a") == key_of(b"a") != key_of(b"b")
