"""The second wall: a system call filter for the executor, as the BPF program that bubblewrap loads."""

import errno
import os
from typing import Any, Final, cast

import pyseccomp

_OTHER_PROCESSES = ("kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace")
_KEYS = ("add_key", "keyctl", "request_key")
_IO_URING = ("io_uring_enter", "io_uring_register", "io_uring_setup")
_NAMESPACES = ("chroot", "pivot_root", "setns", "setdomainname", "sethostname", "unshare")
_OLD_MOUNTS = ("mount", "quotactl", "quotactl_fd", "swapoff", "swapon", "sysfs", "umount", "umount2", "ustat")
_NEW_MOUNTS_API = ("fsconfig", "fsmount", "fsopen", "fspick", "mount_setattr", "move_mount", "open_tree")
_HANDLES = ("fanotify_init", "lookup_dcookie", "name_to_handle_at", "open_by_handle_at")
_KERNEL_CODE = ("bpf", "create_module", "delete_module", "finit_module", "init_module", "kexec_file_load", "kexec_load")
_KERNEL_VIEWS = ("get_kernel_syms", "nfsservctl", "perf_event_open", "query_module", "syslog", "userfaultfd", "uselib")
_MACHINE = ("acct", "ioperm", "iopl", "personality", "reboot", "vhangup", "vm86", "vm86old")
_CLOCK = ("adjtimex", "clock_adjtime", "clock_settime", "settimeofday")
_MEMORY_PLACES = ("mbind", "migrate_pages", "move_pages", "set_mempolicy")
# Memory that no sum over resident pages sees, and that outlives the process that made it.
_UNCOUNTED_MEMORY = ("memfd_create", "memfd_secret", "msgget", "semget", "shmget")

REFUSED: Final = (
    *_OTHER_PROCESSES,
    *_KEYS,
    *_IO_URING,
    *_NAMESPACES,
    *_OLD_MOUNTS,
    *_NEW_MOUNTS_API,
    *_HANDLES,
    *_KERNEL_CODE,
    *_KERNEL_VIEWS,
    *_MACHINE,
    *_CLOCK,
    *_MEMORY_PLACES,
    *_UNCOUNTED_MEMORY,
)
"""What an ordinary program never needs; answered with EPERM."""
UNKNOWN: Final = ("clone3",)
"""Answered with ENOSYS: its flags lie in memory that a filter can't read, and libc then falls back to clone."""

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
_NEW_TIME, _NEW_MOUNTS, _NEW_CGROUP, _NEW_UTS = 0x00000080, 0x00020000, 0x02000000, 0x04000000
_NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
_NAMESPACE_FLAGS: Final = (_NEW_TIME, _NEW_MOUNTS, _NEW_CGROUP, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET)
_AF_UNIX: Final = 1
_S_IFMT: Final = 0o170000
_DEVICE_TYPES: Final = (0o020000, 0o060000)
_TIOCSTI: Final = 0x5412
_TIOCLINUX: Final = 0x541C


def build_filter() -> bytes:
    """The filter as an array of BPF instructions. Other architectures' calls (32 bit, x32) end the process."""
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refuse, unknown = pyseccomp.ERRNO(errno.EPERM), pyseccomp.ERRNO(errno.ENOSYS)
    for name in REFUSED:
        _add(rules, refuse, name)
    for name in UNKNOWN:
        _add(rules, unknown, name)
    for name in ("socket", "socketpair"):
        _add(rules, refuse, name, pyseccomp.Arg(0, pyseccomp.NE, _AF_UNIX))
    for flag in _NAMESPACE_FLAGS:
        _add(rules, refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    for name, place in (("mknod", 1), ("mknodat", 2)):
        for kind in _DEVICE_TYPES:
            _add(rules, refuse, name, pyseccomp.Arg(place, pyseccomp.MASKED_EQ, _S_IFMT, kind))
    for request in (_TIOCSTI, _TIOCLINUX):
        _add(rules, refuse, "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, 0xFFFFFFFF, request))
    return _export(rules)


def describe_filter() -> str:
    """One line for the posture."""
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
