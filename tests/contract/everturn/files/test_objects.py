"""The URL of the object store; objects in memory keep the contract that folders and buckets keep."""

from pathlib import Path

import pytest

from everturn.core.errors import Invalid, Unavailable
from everturn.files.opening import open_objects
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.objects_contract import Alter, ObjectsContract, key_of


async def test_a_file_url_names_a_folder_which_is_made(tmp_path: Path) -> None:
    with open_objects(f"file://{tmp_path}/some%20where/objects") as objects:
        await objects.save(key_of(b"a"), b"a")

    assert (tmp_path / "some where" / "objects").is_dir()


@pytest.mark.parametrize("url", ["", "/tmp", "s3://", "file://host/tmp", "file:relative", "http://x"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(Invalid), open_objects(url):
        pass


def test_a_bucket_is_not_asked_before_it_is_used() -> None:
    with open_objects("s3://bucket/files?endpoint=http://127.0.0.1:9&region=nowhere") as objects:
        assert objects.kind == "S3"


def test_an_unknown_url_is_not_shown() -> None:
    with pytest.raises(Invalid) as refusal, open_objects("redis://:hidden-word@host/0"):
        pass

    assert "hidden-word" not in str(refusal.value)


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


async def test_while_down_a_check_fails() -> None:
    objects = MemoryObjects()
    objects.down = True

    with pytest.raises(Unavailable):
        await objects.check()
