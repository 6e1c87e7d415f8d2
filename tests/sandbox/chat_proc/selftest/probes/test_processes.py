"""Attempts on other processes: denied in the sandbox, and no wonder but for its walls."""

from chat_proc.selftest.probes.processes import PROCESSES


def test_all_are_denied_in_the_sandbox(check_all_held):
    check_all_held(PROCESSES)


def test_without_walls_they_get_through(try_without_walls):
    names = (
        "read the environment of the runner",
        "open a descriptor of the runner",
        "read memory of the runner",
        "make the runner the first oom victim",
        "find a first process with more privileges",
    )

    found = try_without_walls("processes", "PROCESSES", *names, "end the first process")

    assert [name for name, (held, _) in found.items() if not held] == list(names)
