"""What decides whether generated code runs in containers."""

from pathlib import Path

import pytest

from everturn.core.errors import Invalid
from everturn_local.images.choice import choose_containers, find_setting, load_image_names

SOCKET = Path("/h/sockets/broker.sock")


def test_an_absent_engine_is_reported_with_a_remedy(tmp_path: Path):
    environment = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}

    choice = choose_containers(environment, SOCKET)

    assert not choice.chosen
    assert choice.why == "no container engine responds: start Docker, then make images"


@pytest.mark.parametrize(
    ("environment", "socket", "why"),
    [
        ({"BROKER_URL": "unix:///b"}, SOCKET, "BROKER_URL"),
        ({"EXECUTION_MODE": "bubblewrap"}, SOCKET, "EXECUTION_MODE=bubblewrap"),
        ({}, Path("/" + "x" * 107), "too long"),
    ],
)
def test_settings_decide_before_an_engine_is_asked(environment: dict[str, str], socket: Path, why: str):
    assert why in find_setting(environment, socket)


def test_without_a_contrary_setting_the_engine_is_queried():
    assert find_setting({}, Path("/" + "x" * 106)) == ""


def test_the_images_are_those_of_the_profiles():
    profiles = '{"big": {"executor_image": "own/image:1"}}'

    names = load_image_names({"EXECUTION_PROFILES": profiles})

    assert names == ["everturn/exec-supervisor:latest", "everturn/executor:latest", "own/image:1"]
    with pytest.raises(Invalid):
        load_image_names({"EXECUTION_PROFILES": "{"})
