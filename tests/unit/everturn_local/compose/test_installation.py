"""What the compose file is told."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn_local.compose.installation import STORE_URL, Installation, NoSocket, build_variables, find_socket
from everturn_local.settings import WARM_PROFILES, ComposeSettings


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment that names an engine's socket."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        yield {"DOCKER_HOST": f"unix://{path}"}


def test_the_file_is_told_the_folder_the_port_and_whose_group_the_engine_is_of(engine: dict[str, str], tmp_path: Path):
    settings = ComposeSettings(home=tmp_path, bind="0.0.0.0", port=8090, workers=3)

    told = build_variables(settings, {**engine, "REDIS_IMAGE": "registry.example/redis"})

    assert (told["BIND"], told["PORT"], told["WORKERS"]) == ("0.0.0.0", "8090", "3")
    assert (told["EVERTURN_SECRETS"], told["EVERTURN_ENV"]) == (
        str(tmp_path / "secrets"),
        str(tmp_path / "everturn.env"),
    )
    assert told["DOCKER_GROUP"] == str(os.getgid())
    assert told["REDIS_IMAGE"] == "registry.example/redis"
    assert told["EXECUTION_PROFILES"] == WARM_PROFILES
    assert "OBJECTS_URL" not in told


def test_profiles_of_the_operator_go_first_and_s3_names_the_store(engine: dict[str, str], tmp_path: Path):
    told = build_variables(ComposeSettings(home=tmp_path, s3=True), {**engine, "EXECUTION_PROFILES": "{}"})

    assert told["EXECUTION_PROFILES"] == "{}"
    assert told["OBJECTS_URL"] == STORE_URL


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:2375", "unix:///nowhere/docker.sock"])
def test_without_the_engines_socket_the_sentence_names_the_address(address: str):
    with pytest.raises(NoSocket, match=address):
        find_socket({"DOCKER_HOST": address})


def test_settings_of_the_operator_are_never_written_over(tmp_path: Path):
    installation = Installation(tmp_path)

    installation.save_settings_file()
    assert "ANONYMOUS=1" in installation.settings_file.read_text()
    installation.settings_file.write_text("ANONYMOUS=0\n")
    installation.save_settings_file()

    assert installation.settings_file.read_text() == "ANONYMOUS=0\n"
