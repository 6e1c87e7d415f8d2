"""The URL of the object store."""

from pathlib import Path

import pytest

from everturn.errors import Invalid
from everturn.objects.opening import open_objects
from everturn.testing.contracts.objects import key_of


async def test_a_file_url_names_a_folder_which_is_made(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}/some%20where/objects")

    await objects.save(key_of(b"a"), b"a")

    assert (tmp_path / "some where" / "objects").is_dir()


@pytest.mark.parametrize("url", ["", "/tmp", "s3://bucket", "file://host/tmp", "file:relative", "http://x"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        open_objects(url)
