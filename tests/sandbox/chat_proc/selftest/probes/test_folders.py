"""Attempts on files: denied in the sandbox, and no wonder but for its walls."""

from chat_proc.selftest.probes.folders import READING, WRITING


def test_all_are_denied_in_the_sandbox(check_all_held):
    check_all_held(READING, WRITING)


def test_without_walls_they_get_through(try_without_walls):
    reading = try_without_walls("folders", "READING", "read a file of the host", "read the shadow password file")
    writing = try_without_walls("folders", "WRITING", "write to a common system folder")

    assert reading["read a file of the host"] == (False, "it got secret")
    assert reading["read the shadow password file"][0]
    assert not writing["write to a common system folder"][0]
