"""What a supervisor needs before it starts an executor in its own container; tests/sandbox has the rest."""

import os

import pytest

from exec_supervisor.combined import build_posture
from exec_supervisor.supervisor.child_executor import load_users, start_executor


def test_without_root_nothing_is_started(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(PermissionError, match="as root with the capabilities SETGID, SETUID, SETPCAP"):
        start_executor(22_999)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the capabilities of root")
def test_where_a_process_has_the_programs_user_nothing_is_started():
    with pytest.raises(BlockingIOError, match="process 1 of this container"):
        start_executor(os.geteuid())


def test_users_of_processes_are_read():
    assert load_users()[os.getpid()] == {*os.getresuid()}


def test_the_posture_says_what_is_shared():
    posture = build_posture(22_999)

    assert (posture.launcher, posture.outer_uid) == ("containers", 22_999)
    assert "in one container with its runner and supervisor" in posture.user
    assert "shared with the supervisor" in posture.memory
