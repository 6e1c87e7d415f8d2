"""The Node of our environment, and of the machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from everturn_local.web.node import OLDEST, try_find_in_wheel, try_find_node, try_find_on_machine


def test_our_environment_has_a_node_with_npm() -> None:
    node = try_find_in_wheel()

    assert node is not None
    assert node == try_find_node()
    version = subprocess.run(
        [node.program, node.npm, "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert version.stdout.strip()[0].isdigit()
    assert Path(sys.prefix).name in node.why


def put_node(folder: Path, version: str, *, npm: bool = True) -> Path:
    program = folder / "bin" / "node"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    script = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if npm:
        script.parent.mkdir(parents=True)
        script.write_text("")
    return program


def test_the_machines_node_will_do_when_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = put_node(tmp_path, f"v{OLDEST[0]}.{OLDEST[1]}.0")
    monkeypatch.setenv("PATH", str(program.parent))

    node = try_find_on_machine()

    assert node is not None
    assert node.program == program


@pytest.mark.parametrize("version", ["v18.20.4", "none", "v20.18.9"])
def test_an_old_or_broken_node_will_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("PATH", str(put_node(tmp_path, version).parent))

    assert try_find_on_machine() is None


def test_without_a_node_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert try_find_on_machine() is None
