"""`make up` and `make down` where something is in the way; what they do with an engine is in tests/compose."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn_local.compose.commands import NotReady, PortTaken, check_port, run_down, wait_started
from everturn_local.compose.installation import NoSocket
from everturn_local.compose.program import Compose
from everturn_local.compose.unhealthy import SERVICE_LABEL, WORKERS
from everturn_local.images.engine import FoundContainer, NoEngineError
from everturn_local.settings import ComposeSettings


def write_compose(folder: Path, script: str) -> Path:
    program = folder / "docker-compose"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_a_port_in_use_by_another_program_is_reported(tmp_path: Path):
    ours = Compose([str(write_compose(tmp_path, "echo 0123456789ab"))], "trial", {"PATH": os.defpath})
    (tmp_path / "other").mkdir()
    nobodys = Compose([str(write_compose(tmp_path / "other", "exit 0"))], "trial", {"PATH": os.defpath})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = ComposeSettings(port=taken.getsockname()[1])

        check_port(settings, ours)
        with pytest.raises(PortTaken, match="make up PORT="):
            check_port(settings, nobodys)


class Engine:
    """One worker besides others, in its state at each check; the last state stays."""

    def __init__(self, *states: tuple[str, str] | NoEngineError) -> None:
        self._states = list(states)

    def load_containers(self, label: str) -> list[FoundContainer]:
        now = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        if isinstance(now, NoEngineError):
            raise now
        state, health = now
        ingress = FoundContainer("trial-ingress-1", {SERVICE_LABEL: "ingress"}, "running", "healthy", 0)
        return [ingress, FoundContainer("trial-chat-proc-1", {SERVICE_LABEL: WORKERS}, state, health, 1)]

    def load_last_lines(self, name: str, *, count: int) -> str:
        return "slots: must be 1 or more"


def serve_one_worker(serve: Callable[..., str]) -> ComposeSettings:
    url = serve((200, {"parts": {}, "workers": [{"id": "that-ended-seconds-ago"}]}))
    return ComposeSettings(workers=1, port=int(url.rpartition(":")[2]))


@pytest.mark.parametrize("state", [("restarting", ""), ("running", "starting"), ("exited", "")])
def test_an_ended_worker_does_not_count_as_a_started_one(serve: Callable[..., str], state: tuple[str, str]):
    shown: list[str] = []

    with pytest.raises(NotReady, match=r"0 of 1 worker containers are healthy\."):
        wait_started(serve_one_worker(serve), Engine(state), shown.append, limit_s=0.01)

    (worker,) = shown
    assert worker.startswith("trial-chat-proc-1 ")
    assert worker.endswith("slots: must be 1 or more")


def test_it_is_ready_when_the_workers_of_this_start_have_started(serve: Callable[..., str]):
    shown: list[str] = []
    settings = serve_one_worker(serve)
    away = NoEngineError("it is restarted")

    wait_started(settings, Engine(away, ("running", "starting"), ("running", "healthy")), shown.append, limit_s=60)

    assert shown == [f"ready: http://127.0.0.1:{settings.port}"]


def test_an_engine_that_stays_unavailable_is_reported(serve: Callable[..., str]):
    with pytest.raises(NotReady, match="it was stopped"):
        wait_started(serve_one_worker(serve), Engine(NoEngineError("it was stopped")), list[str]().append, limit_s=0.01)


def test_the_reason_mentions_a_missing_engine(tmp_path: Path):
    with pytest.raises(NoSocket):
        run_down(ComposeSettings(home=tmp_path), {"DOCKER_HOST": "unix:///nowhere"}, volumes=False, yes=False)


def test_data_is_deleted_only_after_confirmation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    write_compose(tmp_path, f'echo "$@" >> {tmp_path}/asked')
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(tmp_path / "docker.sock"))
        environment = {"DOCKER_HOST": f"unix://{tmp_path}/docker.sock", "PATH": str(tmp_path)}
        monkeypatch.setattr("builtins.input", lambda _: "n")

        refused = run_down(ComposeSettings(home=tmp_path), environment, volumes=True, yes=False)
        kept = run_down(ComposeSettings(home=tmp_path), environment, volumes=False, yes=False)
        deleted = run_down(ComposeSettings(home=tmp_path), environment, volumes=True, yes=True)

    assert (refused, kept, deleted) == (1, 0, 0)
    assert "kept" in capsys.readouterr().out
    first, second = (tmp_path / "asked").read_text().splitlines()
    assert first.endswith("down --remove-orphans")
    assert second.endswith("down --remove-orphans --volumes")
