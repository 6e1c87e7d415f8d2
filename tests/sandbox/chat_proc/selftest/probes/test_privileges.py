"""Attempts to become more: denied in the sandbox, and no wonder but for its walls."""

from chat_proc.selftest.probes.privileges import NAMESPACES, PRIVILEGES


def test_all_are_denied_in_the_sandbox(check_all_held):
    check_all_held(PRIVILEGES, NAMESPACES)


def test_without_walls_they_get_through_or_reach_the_kernel(try_without_walls):
    privileges = try_without_walls("privileges", "PRIVILEGES", "run without no new privs or a filter")
    namespaces = try_without_walls("privileges", "NAMESPACES", "enter a namespace", "change the root")

    assert not privileges["run without no new privs or a filter"][0]
    assert namespaces["change the root"][0]
    assert not namespaces["enter a namespace"][0]
