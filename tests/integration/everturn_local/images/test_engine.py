"""Images in a real engine."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from everturn_local.images.engine import Engine, ImageError, NoEngineError, open_engine


def build_context(folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    for name, text in files.items():
        (folder / name).write_text(text)
    return {name: folder / name for name in files}


def test_an_image_is_built_with_its_label_tagged_and_removed(engine: Engine, repository: str, tmp_path: Path):
    context = build_context(tmp_path, {"Dockerfile": "ARG FILE\nFROM scratch\nARG FILE\nCOPY $FILE /", "a": "1"})

    engine.build_image(context, name=f"{repository}:one", arguments={"FILE": "a"}, labels={"everturn.content": "c"})
    engine.tag_image(f"{repository}:one", alias=f"{repository}:latest")

    found = engine.try_load_image(f"{repository}:latest")
    assert found is not None
    assert set(engine.load_tags(repository)) == {f"{repository}:one", f"{repository}:latest"}
    assert found.labels == {"everturn.content": "c"}
    assert engine.try_remove_tag(f"{repository}:one") == f"{repository}:one"
    assert engine.try_load_image(f"{repository}:one") is None
    assert engine.load_tags(repository) == [f"{repository}:latest"]


def test_names_of_other_repositories_are_not_told(engine: Engine, repository: str, executor_image: str):
    engine.tag_image(executor_image, alias=f"{repository}:alias")

    assert engine.load_tags(repository) == [f"{repository}:alias"]


def test_a_failing_build_shows_what_was_printed(engine: Engine, repository: str, tmp_path: Path):
    context = build_context(tmp_path, {"Dockerfile": "FROM scratch\nCOPY absent /"})

    with pytest.raises(ImageError, match="COPY absent"):
        engine.build_image(context, name=f"{repository}:one", arguments={}, labels={})

    assert engine.load_tags(repository) == []


def test_a_file_system_becomes_an_image(engine: Engine, repository: str):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    tar.seek(0)

    engine.import_image(tar, f"{repository}:system")

    assert engine.try_load_image(f"{repository}:system") is not None


def test_an_absent_engine_is_an_error_that_names_the_address(tmp_path: Path):
    with pytest.raises(NoEngineError), open_engine({"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}):
        pass
