"""Command prefixes that set user and parent-death signal."""

import os
from pathlib import Path

import pytest

from everturn_local.privileges import SERVER_UID, build_child_prefix, build_server_prefix, is_reachable, is_root

needs_root = pytest.mark.skipif(not is_root(), reason="changes owners, which needs root")


def test_a_child_gets_its_parent_death_signal():
    assert build_child_prefix(death_signal="KILL")[1:] == ["--pdeathsig", "KILL", "--"]


def test_a_closed_folder_above_makes_a_path_unreachable(tmp_path: Path):
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)

    assert not is_reachable(inner)
    assert is_reachable(Path("/usr/bin"))


@needs_root
def test_a_folder_of_the_server_itself_is_passable(tmp_path: Path):
    folder = Path("/tmp") / f"everturn-test-{os.getpid()}"
    folder.mkdir(mode=0o700)
    try:
        os.chown(folder, SERVER_UID, SERVER_UID)
        assert is_reachable(folder / "data")
        os.chown(folder, 0, SERVER_UID)
        folder.chmod(0o710)
        assert is_reachable(folder / "data")
        folder.chmod(0o700)
        assert not is_reachable(folder / "data")
    finally:
        folder.rmdir()


@needs_root
def test_as_root_a_server_runs_as_nobody(tmp_path: Path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)

    plain = build_server_prefix(death_signal="INT", reaches=[Path("/usr/bin/env")])
    passing = build_server_prefix(death_signal="INT", reaches=[closed / "data"])

    assert plain[1:3] == ["--reuid", str(SERVER_UID)]
    assert "--ambient-caps" not in plain
    assert "--ambient-caps" in passing
