"""The filter's program; what it refuses is tried on the real sandbox."""

import struct

from exec_supervisor.local.seccomp import REFUSED, build_filter, describe_filter


def test_the_filter_begins_by_checking_the_architecture():
    program = build_filter()

    instructions = list(struct.iter_unpack("=HBBI", program))
    assert len(instructions) > len(REFUSED) / 2
    assert instructions[0] == (0x20, 0, 0, 4)  # load the architecture's number
    assert program == build_filter()


def test_no_call_is_named_twice():
    assert len(set(REFUSED)) == len(REFUSED)
    assert str(len(REFUSED)) in describe_filter()
