"""A seccomp filter that allows a process only memory, time, its open descriptors and its exit."""

import ctypes
import errno
import os
import struct
from typing import Final

_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_KILL, _ALLOW, _REFUSE = 0x8000_0000, 0x7FFF_0000, 0x0005_0000 | errno.EPERM
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4

# Not among them: calls that open, connect, create processes or change limits, and those that could ignore or block the
# signals of the time limits (rt_sigaction, rt_sigprocmask, setitimer).
_X86_64: Final = {
    "read": 0, "write": 1, "close": 3, "fstat": 5, "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12,
    "rt_sigreturn": 15, "readv": 19, "writev": 20, "sched_yield": 24, "mremap": 25, "madvise": 28, "nanosleep": 35,
    "getpid": 39, "exit": 60, "uname": 63, "gettimeofday": 96, "getrusage": 98, "times": 100, "getuid": 102,
    "getgid": 104, "geteuid": 107, "getegid": 108, "sigaltstack": 131, "gettid": 186, "futex": 202,
    "sched_getaffinity": 204, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
    "clock_nanosleep": 230, "exit_group": 231, "getrandom": 318, "membarrier": 324, "rseq": 334,
}  # fmt: skip
_AARCH64: Final = {
    "close": 57, "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66, "fstat": 80, "exit": 93,
    "exit_group": 94, "futex": 98, "nanosleep": 101, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115,
    "sched_getaffinity": 123, "sched_yield": 124, "restart_syscall": 128, "sigaltstack": 132, "rt_sigreturn": 139,
    "times": 153, "uname": 160, "getrusage": 165, "gettimeofday": 169, "getpid": 172, "getuid": 174, "geteuid": 175,
    "getgid": 176, "getegid": 177, "gettid": 178, "brk": 214, "munmap": 215, "mremap": 216, "mmap": 222,
    "mprotect": 226, "madvise": 233, "getrandom": 278, "membarrier": 283, "rseq": 293,
}  # fmt: skip
_TABLES: Final = {"x86_64": (0xC000_003E, _X86_64), "aarch64": (0xC000_00B7, _AARCH64)}


class _Program(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def allow_only_computing() -> None:
    """Apply the filter to this process irreversibly; every other call fails with EPERM. Raises OSError on failure.

    The process needs PR_SET_NO_NEW_PRIVS. There is no filter for other architectures than these two.
    """
    machine = os.uname().machine
    if machine not in _TABLES:
        raise OSError(errno.ENOSYS, f"there is no system call filter for {machine}")
    code = build_filter(*_TABLES[machine])
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the system call filter can't be applied")


def build_filter(architecture: int, allowed: dict[str, int]) -> bytes:
    """The filter in the kernel's format (`struct sock_filter`, eight bytes an instruction)."""
    code = [
        _instruction(_LOAD_WORD, _ARCHITECTURE_AT),
        _instruction(_JUMP_IF_EQUAL, architecture, if_equal=1),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD_WORD, _NUMBER_AT),
    ]
    numbers = sorted(allowed.values())
    for place, number in enumerate(numbers):
        # Jump to the last instruction, over the remaining checks and the refusal.
        code.append(_instruction(_JUMP_IF_EQUAL, number, if_equal=len(numbers) - place))
    code += [_instruction(_RETURN, _REFUSE), _instruction(_RETURN, _ALLOW)]
    return b"".join(code)


def _instruction(operation: int, value: int, *, if_equal: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, if_equal, 0, value)
