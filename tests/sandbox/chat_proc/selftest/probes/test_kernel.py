"""Attempts on the kernel: denied in the sandbox, and no wonder but for its walls."""

from chat_proc.selftest.probes.kernel import KERNEL


def test_all_are_denied_in_the_sandbox(check_all_held):
    check_all_held(KERNEL)


def test_without_walls_they_get_through_or_reach_the_kernel(try_without_walls):
    found = try_without_walls("kernel", "KERNEL", "hold memory outside the limits", "hang up the terminal")

    assert not found["hold memory outside the limits"][0]
    assert found["hang up the terminal"][0]
