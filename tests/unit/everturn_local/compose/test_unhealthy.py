"""The containers that `make up` reports when it fails, and their output."""

from collections.abc import Sequence

import pytest

from everturn_local.compose.unhealthy import (
    MAX_SHOWN_CHARS,
    SERVICE_LABEL,
    WORKERS,
    count_healthy,
    describe,
    find_unhealthy,
    show_unhealthy,
)
from everturn_local.images.engine import FoundContainer, NoEngineError


def build(
    name: str, state: str = "running", *, health: str = "", exit_code: int = 0, service: str = "ingress"
) -> FoundContainer:
    return FoundContainer(name, {SERVICE_LABEL: service}, state, health, exit_code)


class Engine:
    """Containers with their output; those `gone` no longer exist when their output is requested."""

    def __init__(self, said: Sequence[tuple[FoundContainer, str]], *, gone: Sequence[str] = ()) -> None:
        self._said = {container.name: (container, text) for container, text in said}
        self._gone = gone
        self.label = ""

    def load_containers(self, label: str) -> list[FoundContainer]:
        self.label = label
        return [container for container, _ in self._said.values()]

    def load_last_lines(self, name: str, *, count: int) -> str:
        if name in self._gone:
            raise NoEngineError("no such container")
        return self._said[name][1]


@pytest.mark.parametrize(
    ("container", "is_unhealthy"),
    [
        (build("a"), False),
        (build("a", health="healthy"), False),
        (build("a", health="starting"), True),
        (build("a", health="unhealthy"), True),
        (build("a", "exited", service="migrate"), False),
        (build("a", "exited", exit_code=1, service="migrate"), True),
        (build("a", "exited"), True),
        (build("a", "restarting", exit_code=2), True),
        (build("a", "created"), True),
        (build("a", "paused"), True),
    ],
)
def test_running_containers_and_completed_jobs_are_healthy(container: FoundContainer, is_unhealthy: bool):
    assert bool(find_unhealthy([container])) is is_unhealthy


@pytest.mark.parametrize(
    ("container", "words"),
    [
        (build("a", "exited", exit_code=137), "ended with 137"),
        (build("a", "restarting", exit_code=2), "ended with 2, repeatedly"),
        (build("a", "created"), "was not started"),
        (build("a", health="unhealthy"), "but not healthy"),
        (build("a", health="starting"), "but not ready yet"),
        (build("a", "paused"), "is paused"),
    ],
)
def test_its_state_is_described(container: FoundContainer, words: str):
    assert words in describe(container)


def test_healthy_containers_of_a_service_are_counted():
    containers = [
        build("a", health="healthy", service=WORKERS),
        build("b", health="starting", service=WORKERS),
        build("c", "restarting", exit_code=2, service=WORKERS),
        build("d", health="healthy"),
    ]

    assert count_healthy(containers, WORKERS) == 1


def test_only_output_of_unhealthy_containers_is_shown():
    engine = Engine(
        [
            (build("x_redis_1", health="healthy"), "ready"),
            (build("x_migrate_1", "exited", exit_code=1, service="migrate"), "no such role\n"),
            (build("x_chat-proc_2", "restarting", exit_code=2), "x" * (MAX_SHOWN_CHARS + 1) + "slots: 0"),
            (build("x_chat-proc_1", "created"), ""),
        ]
    )
    shown: list[str] = []

    show_unhealthy(engine, "x", shown.append)

    first, second, third = shown
    assert engine.label == "com.docker.compose.project=x"
    assert first.startswith("x_chat-proc_1 was not started")
    assert first.endswith("no output")
    assert second.endswith("slots: 0")
    assert len(second) < MAX_SHOWN_CHARS + 100
    assert third == "x_migrate_1 ended with 1, and last output:\nno such role"


def test_a_vanished_container_hides_no_other():
    engine = Engine([(build("x_a", "created"), ""), (build("x_b", "exited", exit_code=2), "slots: 0")], gone=["x_a"])
    shown: list[str] = []

    show_unhealthy(engine, "x", shown.append)

    assert ["no such container" in shown[0], "slots: 0" in shown[1]] == [True, True]


def test_an_engine_that_became_unavailable_is_reported():
    class Away(Engine):
        def load_containers(self, label: str) -> list[FoundContainer]:
            raise NoEngineError("it was stopped")

    shown: list[str] = []

    show_unhealthy(Away([]), "x", shown.append)

    assert len(shown) == 1
    assert "it was stopped" in shown[0]
