"""The in-memory object store keeps the contract that files keep, and can be down."""

import pytest

from everturn.core.errors import Unavailable
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.objects_contract import Alter, ObjectsContract


class TestMemoryObjects(ObjectsContract):
    @pytest.fixture
    def objects(self) -> MemoryObjects:
        return MemoryObjects()

    @pytest.fixture
    def alter(self, objects: MemoryObjects) -> Alter:
        return objects.stored.__setitem__

    @pytest.fixture
    def unreachable(self) -> MemoryObjects:
        away = MemoryObjects()
        away.down = True
        return away


async def test_while_down_a_check_says_so() -> None:
    objects = MemoryObjects()
    objects.down = True

    with pytest.raises(Unavailable):
        await objects.check()
