"""The second wall: a system call filter for the executor, as the BPF program that a launcher loads."""

import errno
import os
from typing import Any, Final, cast

import pyseccomp

from exec_supervisor.system_calls import (
    AF_INET,
    AF_UNIX,
    DEVICE_TYPES,
    F_NOTIFY,
    FIRST_REFUSED_SOCKET_OPTION,
    FIRST_REFUSED_TCP_OPTION,
    LATER,
    NAMESPACE_FLAGS,
    OWN_PROCESS,
    REFUSED,
    S_IFMT,
    SO_ATTACH_FILTER,
    SOCK_STREAM,
    SOCKET_TYPE_BITS,
    SOL_SOCKET,
    TCP,
    TIOCLINUX,
    TIOCSTI,
    UNKNOWN,
)

# Numbers since Linux 5.1 are the same on every architecture; a libseccomp older than a call doesn't know its name.
_COMMON_NUMBERS: Final = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "memfd_secret": 447,
}


def build_filter(*, network: bool = False) -> bytes:
    """Build the filter as an array of BPF instructions. Calls of other architectures (32 bit, x32) end the process.

    With `network`, a program can also make TCP sockets of IPv4.
    """
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refuse, unknown = pyseccomp.ERRNO(errno.EPERM), pyseccomp.ERRNO(errno.ENOSYS)
    for name in REFUSED:
        _add(rules, refuse, name)
    for name in UNKNOWN:
        _add(rules, unknown, name)
    for number in LATER:
        rules.add_rule(unknown, number)
    for name in ("socketpair",) if network else ("socket", "socketpair"):
        _add(rules, refuse, name, pyseccomp.Arg(0, pyseccomp.NE, AF_UNIX))
    if network:
        _add_tcp(rules, refuse)
    _add(rules, refuse, "prlimit64", pyseccomp.Arg(0, pyseccomp.NE, OWN_PROCESS))
    for flag in NAMESPACE_FLAGS:
        _add(rules, refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    for name, place in (("mknod", 1), ("mknodat", 2)):
        for kind in DEVICE_TYPES:
            _add(rules, refuse, name, pyseccomp.Arg(place, pyseccomp.MASKED_EQ, S_IFMT, kind))
    _add(rules, refuse, "fcntl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, 0xFFFFFFFF, F_NOTIFY))
    for request in (TIOCSTI, TIOCLINUX):
        _add(rules, refuse, "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, 0xFFFFFFFF, request))
    return _export(rules)


def _add_tcp(rules: pyseccomp.SyscallFilter, refuse: int) -> None:
    """Refuse all sockets but Unix and TCP ones of IPv4. A filter of refusals has no "except", so these are ranges."""
    inet = pyseccomp.Arg(0, pyseccomp.EQ, AF_INET)
    _add(rules, refuse, "socket", pyseccomp.Arg(0, pyseccomp.LT, AF_UNIX))
    _add(rules, refuse, "socket", pyseccomp.Arg(0, pyseccomp.GT, AF_INET))
    for kind in range(SOCKET_TYPE_BITS + 1):
        if kind != SOCK_STREAM:
            _add(rules, refuse, "socket", inet, pyseccomp.Arg(1, pyseccomp.MASKED_EQ, SOCKET_TYPE_BITS, kind))
    for protocol in range(1, TCP):
        _add(rules, refuse, "socket", inet, pyseccomp.Arg(2, pyseccomp.EQ, protocol))
    _add(rules, refuse, "socket", inet, pyseccomp.Arg(2, pyseccomp.GT, TCP))
    for level, first in ((SOL_SOCKET, FIRST_REFUSED_SOCKET_OPTION), (TCP, FIRST_REFUSED_TCP_OPTION)):
        of_level = pyseccomp.Arg(1, pyseccomp.EQ, level)
        _add(rules, refuse, "setsockopt", of_level, pyseccomp.Arg(2, pyseccomp.GE, first))
    attach = pyseccomp.Arg(2, pyseccomp.EQ, SO_ATTACH_FILTER)
    _add(rules, refuse, "setsockopt", pyseccomp.Arg(1, pyseccomp.EQ, SOL_SOCKET), attach)
    _add(rules, refuse, "setsockopt", pyseccomp.Arg(1, pyseccomp.LT, SOL_SOCKET))
    _add(rules, refuse, "setsockopt", pyseccomp.Arg(1, pyseccomp.GT, TCP))
    for other in range(SOL_SOCKET + 1, TCP):
        _add(rules, refuse, "setsockopt", pyseccomp.Arg(1, pyseccomp.EQ, other))


def describe_filter() -> str:
    """Describe the filter in one line for the posture."""
    return f"seccomp filter, {len(REFUSED)} calls refused, sockets of the Unix family only"


def _add(rules: pyseccomp.SyscallFilter, action: int, name: str, *arguments: Any) -> None:
    """Add a rule, unless this architecture has no such call."""
    number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
    if number < 0:
        number = _COMMON_NUMBERS.get(name, number)
    if number >= 0:
        rules.add_rule(action, number, *arguments)


def _export(rules: pyseccomp.SyscallFilter) -> bytes:
    descriptor = os.memfd_create("seccomp")
    with open(descriptor, "w+b") as file:
        cast("Any", rules).export_bpf(file)
        file.seek(0)
        return file.read()
