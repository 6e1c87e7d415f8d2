"""Which image ours stand on."""

from pathlib import Path

import pytest

from everturn_local.images.bases import save_wanted_base, try_load_base
from everturn_local.images.engine import Engine, ImageError


def test_a_named_base_that_is_here_is_taken(engine: Engine, executor_image: str):
    found = try_load_base(engine, executor_image)

    assert found is not None
    assert executor_image in found.tags


def test_a_named_base_is_never_replaced_by_another(engine: Engine, tmp_path: Path):
    absent = "localhost:1/absent:none"
    said: list[str] = []

    assert try_load_base(engine, absent) is None
    with pytest.raises(ImageError):
        save_wanted_base(engine, absent, tmp_path, said.append)

    assert said == [f"pulling {absent}"]
