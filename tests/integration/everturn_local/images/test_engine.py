"""Images in a real engine."""

import io
import os
import secrets
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import docker
import pytest

from everturn_local.images.engine import Engine, ImageError, NoEngineError, open_engine


def build_context(folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    for name, text in files.items():
        (folder / name).write_text(text)
    return {name: folder / name for name in files}


def test_an_image_is_built_with_its_label_and_removed(engine: Engine, repository: str, tmp_path: Path):
    context = build_context(tmp_path, {"Dockerfile": "ARG FILE\nFROM scratch\nARG FILE\nCOPY $FILE /", "a": "1"})

    engine.build_image(context, name=f"{repository}:one", arguments={"FILE": "a"}, labels={"everturn.content": "c"})
    found = engine.try_load_image(f"{repository}:one")
    assert found is not None
    assert found.labels == {"everturn.content": "c"}
    assert engine.load_tags(repository) == [f"{repository}:one"]
    assert engine.try_remove_tag(f"{repository}:one") == f"{repository}:one"
    assert engine.try_load_image(f"{repository}:one") is None


def test_names_in_other_repositories_are_not_listed(engine: Engine, repository: str, tmp_path: Path):
    context = build_context(tmp_path, {"Dockerfile": "FROM scratch\nCOPY a /", "a": repository})
    for name in (f"{repository}:one", f"{repository}-other:one"):
        engine.build_image(context, name=name, arguments={}, labels={})

    listed = engine.load_tags(repository)
    engine.try_remove_tag(f"{repository}-other:one")

    assert listed == [f"{repository}:one"]


def test_a_failing_build_shows_what_was_printed(engine: Engine, repository: str, tmp_path: Path):
    context = build_context(tmp_path, {"Dockerfile": "FROM scratch\nCOPY absent /"})

    with pytest.raises(ImageError, match="COPY absent"):
        engine.build_image(context, name=f"{repository}:one", arguments={}, labels={})

    assert engine.try_load_image(f"{repository}:one") is None


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


@pytest.fixture
def ended(engine: Engine, executor_image: str) -> Iterator[str]:
    """The label of a container that said two lines and ended with 3."""
    client = cast("Any", docker).from_env(environment=dict(os.environ))
    name = secrets.token_hex(6)
    said = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    container = client.containers.create(
        executor_image,
        ["python3", "-I", "-c", said],
        entrypoint="",
        network_mode="none",
        labels={"everturn.test": name},
    )
    container.start()
    container.wait(timeout=60)
    yield f"everturn.test={name}"
    container.remove(force=True)
    client.close()


def test_a_container_that_ended_is_found_with_its_state_and_its_last_lines(engine: Engine, ended: str):
    (found,) = engine.load_containers(ended)

    assert (found.state, found.health, found.exit_code) == ("exited", "", 3)
    assert "one" in engine.load_last_lines(found.name, count=40)
    assert len(engine.load_last_lines(found.name, count=1).splitlines()) == 1
    with pytest.raises(NoEngineError):
        engine.load_last_lines("everturn-test-nobody", count=1)
