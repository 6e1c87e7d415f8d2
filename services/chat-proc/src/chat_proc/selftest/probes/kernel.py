"""Attempts to make system calls that ordinary programs never need, in which most kernel holes were found."""

import ctypes
import mmap
import os
import pty
import time
from functools import partial
from typing import Final

from chat_proc.selftest.probes.attempts import Group, Surroundings, call, call_number, try_each, try_in_child

KERNEL: Final = Group("kernel")
GROUPS: Final = (KERNEL,)
_BUFFER: Final = bytes(128)
_X32_BIT: Final = 0x40000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FIRST_UNKNOWN, _LAST_UNKNOWN = 452, 480
_LATER_AND_HARMLESS: Final = frozenset({452, 454, 455, 456})
"""fchmodat2 and the three futex calls: later additions to Linux that ordinary libraries use."""


@KERNEL.attempt
def use_the_keyring(around: Surroundings) -> object:
    return try_each(
        (
            partial(call, "keyctl", 0, -5, 1),
            partial(call, "add_key", b"user", b"x", b"x", 1, -5),
            partial(call, "request_key", b"user", b"x", 0, -5),
        )
    )


@KERNEL.attempt
def use_io_uring(around: Surroundings) -> object:
    return try_each(
        (
            partial(call, "io_uring_setup", 8, ctypes.create_string_buffer(_BUFFER)),
            partial(call, "io_uring_enter", -1, 0, 0, 0, 0),
            partial(call, "io_uring_register", -1, 0, 0, 0),
        )
    )


@KERNEL.attempt
def load_a_bpf_program(around: Surroundings) -> int:
    return call("bpf", 0, ctypes.create_string_buffer(_BUFFER), 120)


@KERNEL.attempt
def open_a_performance_counter(around: Surroundings) -> int:
    return call("perf_event_open", ctypes.create_string_buffer(_BUFFER), 0, -1, -1, 0)


@KERNEL.attempt
def handle_page_faults_with_userfaultfd(around: Surroundings) -> int:
    return call("userfaultfd", 0)


@KERNEL.attempt
def hold_memory_outside_the_limits(around: Surroundings) -> object:
    return try_each(
        (
            partial(call, "memfd_create", b"x", 0),
            partial(call, "memfd_secret", 0),
            partial(call, "shmget", 0, 4096, 0o1600),
            partial(call, "msgget", 0, 0o1600),
            partial(call, "semget", 0, 1, 0o1600),
        )
    )


@KERNEL.attempt
def load_a_module(around: Surroundings) -> object:
    return try_each(
        (
            partial(call, "init_module", 0, 0, 0),
            partial(call, "finit_module", 0, b"", 0),
            partial(call, "delete_module", b"x", 0),
        )
    )


@KERNEL.attempt
def start_another_kernel(around: Surroundings) -> object:
    # With a magic number that the kernel itself rejects: the attempt must not restart a machine without walls.
    return try_each((partial(call, "kexec_load", 0, 0, 0, -1), partial(call, "reboot", 0, 0, 0, 0)))


@KERNEL.attempt
def set_the_clock(around: Surroundings) -> object:
    # Invalid times: valid ones would be set if nothing forbids it.
    return try_each(
        (partial(call, "clock_settime", 0, b"\xff" * 16), partial(call, "settimeofday", b"\xff" * 16, 0)),
    )


@KERNEL.attempt
def set_the_clock_through_the_library(around: Surroundings) -> None:
    time.clock_settime(time.CLOCK_MONOTONIC_RAW, 0)


@KERNEL.attempt
def read_the_kernel_log(around: Surroundings) -> int:
    return call("syslog", 3, ctypes.create_string_buffer(_BUFFER), 10)


@KERNEL.attempt
def access_hardware_ports(around: Surroundings) -> object:
    return try_each((partial(call, "ioperm", 0x80, 1, 1), partial(call, "iopl", 3)))


@KERNEL.attempt
def change_its_personality(around: Surroundings) -> int:
    """Among other things, this disables address randomization."""
    return call("personality", 0x0040000)


@KERNEL.attempt
def use_the_local_descriptor_table(around: Surroundings) -> int:
    return call("modify_ldt", 0, ctypes.create_string_buffer(_BUFFER), 16)


@KERNEL.attempt
def watch_whole_file_systems(around: Surroundings) -> int:
    return call("fanotify_init", 0, 0)


@KERNEL.attempt
def move_pages_between_nodes(around: Surroundings) -> object:
    return try_each(
        (
            partial(call, "move_pages", 0, 0, 0, 0, 0, 0),
            partial(call, "migrate_pages", 0, 0, 0, 0),
            partial(call, "mbind", 0, 0, 0, 0, 0, 0),
            partial(call, "set_mempolicy", 0, 0, 0),
        )
    )


@KERNEL.attempt
def change_swap_and_quotas(around: Surroundings) -> object:
    return try_each((partial(call, "swapon", b"/nowhere", 0), partial(call, "quotactl", 0, b"/nowhere", 0, 0)))


@KERNEL.attempt
def hang_up_the_terminal(around: Surroundings) -> int:
    return call("vhangup")


@KERNEL.attempt
def type_into_a_terminal(around: Surroundings) -> object:
    """A terminal of its own is harmless; typing into one must be denied."""
    try:
        leader, follower = pty.openpty()
    except OSError:
        leader = follower = os.open("/dev/null", os.O_RDWR)
    return try_each(
        (
            partial(_control, follower, _TIOCSTI),
            partial(_control, leader, _TIOCLINUX),
            partial(_control, follower, _TIOCSTI | 1 << 32),
        )
    )


@KERNEL.attempt
def make_32_bit_system_calls(around: Surroundings) -> None:
    """Mapping executable memory is allowed; entering the kernel by `int 0x80` (getpid) is not."""
    if os.uname().machine != "x86_64":
        raise OSError("no other entry on this architecture")
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    enter = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    try_in_child(enter)


@KERNEL.attempt
def make_x32_system_calls(around: Surroundings) -> None:
    try_in_child(lambda: call_number(_X32_BIT | 39))


@KERNEL.attempt
def make_system_calls_of_later_kernels(around: Surroundings) -> object:
    """A denylist does not cover calls that were added after it."""
    numbers = (number for number in range(_FIRST_UNKNOWN, _LAST_UNKNOWN) if number not in _LATER_AND_HARMLESS)
    return try_each(partial(call_number, number, -1, 0, 0, 0, 0, 0) for number in numbers)


def _control(descriptor: int, request: int) -> object:
    return call_number(16 if os.uname().machine == "x86_64" else 29, descriptor, request, b"x")
