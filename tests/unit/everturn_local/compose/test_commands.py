"""`make up` and `make down` where something is in the way; what they do with an engine is in tests/compose."""

import os
import socket
from pathlib import Path

import pytest

from everturn_local.compose.commands import PortTaken, check_port, run_down
from everturn_local.compose.installation import NoSocket
from everturn_local.compose.program import Compose
from everturn_local.settings import ComposeSettings


def write_compose(folder: Path, script: str) -> Path:
    program = folder / "docker-compose"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_a_port_of_another_program_is_told_and_that_of_our_ingress_is_none(tmp_path: Path):
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


def test_without_an_engine_the_sentence_says_so(tmp_path: Path):
    with pytest.raises(NoSocket):
        run_down(ComposeSettings(home=tmp_path), {"DOCKER_HOST": "unix:///nowhere"}, volumes=False, yes=False)


def test_data_is_deleted_only_after_a_yes(
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
