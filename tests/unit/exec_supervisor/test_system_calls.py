"""What both filters refuse."""

from exec_supervisor.system_calls import NAMESPACE_FLAGS, REFUSED, UNKNOWN


def test_no_call_is_named_twice():
    assert len({*REFUSED, *UNKNOWN}) == len(REFUSED) + len(UNKNOWN)


def test_each_flag_is_one_bit_and_they_are_apart():
    assert all(flag.bit_count() == 1 for flag in NAMESPACE_FLAGS)
    assert len(set(NAMESPACE_FLAGS)) == 8
