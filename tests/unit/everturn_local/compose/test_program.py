"""Which compose program is used, and how its failures are reported."""

import os
from pathlib import Path

import pytest

from everturn_local.compose.program import FILE, Compose, ComposeFailed, NoCompose, find_program


def write_program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def build_compose(program: Path) -> Compose:
    return Compose([str(program)], "trial", {"PATH": os.defpath})


def test_the_engines_own_compose_goes_first(tmp_path: Path):
    docker = write_program(tmp_path, "docker", '[ "$1 $2" = "compose version" ]')
    write_program(tmp_path, "docker-compose", "exit 0")

    assert find_program(str(tmp_path)) == [str(docker), "compose"]


def test_the_standalone_program_is_taken_where_the_engine_has_none(tmp_path: Path):
    write_program(tmp_path, "docker", "exit 1")
    standalone = write_program(tmp_path, "docker-compose", "exit 0")

    assert find_program(str(tmp_path)) == [str(standalone)]


def test_the_reason_says_what_to_install(tmp_path: Path):
    with pytest.raises(NoCompose, match="docker-compose"):
        find_program(str(tmp_path))


def test_every_command_names_project_and_file(tmp_path: Path):
    program = write_program(tmp_path, "compose", 'echo "$@"')

    assert build_compose(program).capture("ps") == f"--project-name trial --file {FILE} ps"


def test_a_failure_contains_the_output_of_the_program(tmp_path: Path):
    compose = build_compose(write_program(tmp_path, "compose", "echo broken file >&2; exit 3"))

    with pytest.raises(ComposeFailed, match="broken file"):
        compose.capture("ps")
    with pytest.raises(ComposeFailed, match="`up` exited with 3"):
        compose.run("up", limit_s=30)
    assert compose.follow("logs") == 3


def test_a_program_that_takes_too_long_is_killed(tmp_path: Path):
    compose = build_compose(write_program(tmp_path, "compose", "exec sleep 60"))

    with pytest.raises(ComposeFailed, match="did not finish"):
        compose.run("up", limit_s=0.2)
