"""The second wall of container runs: the system calls that both containers can make, in the engine's profile format.

All others get EPERM. Nothing that the bubblewrap launcher's filter rejects is allowed.
"""

import errno
import json
import sys
from typing import Any, Final

from exec_supervisor.system_calls import (
    AF_INET,
    AF_UNIX,
    FIRST_REFUSED_SOCKET_OPTION,
    FIRST_REFUSED_TCP_OPTION,
    NAMESPACE_FLAGS,
    OWN_PROCESS,
    S_IFMT,
    SO_ATTACH_FILTER,
    SOCK_STREAM,
    SOCKET_TYPE_BITS,
    SOL_SOCKET,
    TCP,
    UNKNOWN,
)

_PATHS: Final = """
access chdir chmod chown creat faccessat faccessat2 fchdir fchmod fchmodat fchmodat2 fchown fchownat futimesat getcwd
getdents getdents64 lchown link linkat lstat mkdir mkdirat newfstatat open openat openat2 readlink readlinkat rename
renameat renameat2 rmdir stat statfs statx symlink symlinkat truncate umask unlink unlinkat utime utimensat utimes
"""
_ATTRIBUTES: Final = """
fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr lremovexattr lsetxattr removexattr
setxattr
"""
_OPEN_FILES: Final = """
cachestat close close_range copy_file_range dup dup2 dup3 fadvise64 fallocate fcntl fdatasync flock fstat fstatfs fsync
ftruncate lseek pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readv sendfile splice sync
sync_file_range syncfs tee write writev
"""
_WAITING: Final = """
epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 inotify_init inotify_init1
inotify_rm_watch poll ppoll pselect6 select signalfd signalfd4 timerfd_create timerfd_gettime
timerfd_settime
"""
_MEMORY: Final = """
brk get_mempolicy madvise membarrier mincore mlock mlock2 mlockall mmap mprotect mremap msync munlock munlockall munmap
pkey_alloc pkey_free pkey_mprotect
"""
_PROCESSES: Final = """
arch_prctl capget execve execveat exit exit_group fork getpgid getpgrp getpid getppid getsid gettid pidfd_open
pidfd_send_signal prctl rseq set_robust_list get_robust_list set_thread_area get_thread_area set_tid_address setpgid
setsid vfork wait4 waitid
"""
_THREADS: Final = "futex futex_requeue futex_wait futex_waitv futex_wake getcpu restart_syscall"
_USERS: Final = """
getegid geteuid getgid getgroups getresgid getresuid getuid setfsgid setfsuid setgid setgroups setregid setresgid
setresuid setreuid setuid
"""
_SIGNALS: Final = """
alarm getitimer kill pause rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
rt_sigtimedwait rt_tgsigqueueinfo setitimer sigaltstack tgkill timer_create timer_delete timer_getoverrun timer_gettime
timer_settime tkill
"""
_SCHEDULING: Final = """
getpriority ioprio_get ioprio_set sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
sched_setscheduler sched_yield setpriority
"""
_MACHINE: Final = """
clock_getres clock_gettime clock_nanosleep getrandom getrlimit getrusage gettimeofday nanosleep setrlimit sysinfo time
times uname
"""
_SOCKETS: Final = """
accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg sendto
shutdown
"""

_FILES: Final = f"{_PATHS} {_ATTRIBUTES} {_OPEN_FILES} {_WAITING} {_SOCKETS}"
_RUNNING: Final = f"{_MEMORY} {_PROCESSES} {_THREADS} {_USERS} {_SIGNALS} {_SCHEDULING} {_MACHINE}"

ALLOWED: Final = tuple(f"{_FILES} {_RUNNING}".split())
"""Calls allowed with any arguments. Left out, because no ordinary program needs them: the kernel's older asynchronous
I/O, message queues, shared segments, and calls that need a capability. Therefore `no-new-privileges` is also required:
without it an engine drops capabilities only after the filter is active, and then can't."""

_IOCTLS: Final = {
    "TCGETS": 0x5401,
    "TCSETS": 0x5402,
    "TCSETSW": 0x5403,
    "TCSETSF": 0x5404,
    "TCFLSH": 0x540B,
    "TIOCSCTTY": 0x540E,
    "TIOCGPGRP": 0x540F,
    "TIOCSPGRP": 0x5410,
    "TIOCOUTQ": 0x5411,
    "TIOCGWINSZ": 0x5413,
    "TIOCSWINSZ": 0x5414,
    "FIONREAD": 0x541B,
    "FIONBIO": 0x5421,
    "TIOCNOTTY": 0x5422,
    "TIOCGSID": 0x5429,
    "TIOCGPTPEER": 0x5441,
    "FIONCLEX": 0x5450,
    "FIOCLEX": 0x5451,
    "FIOASYNC": 0x5452,
    "TIOCGPTN": 0x80045430,
    "TIOCSPTLCK": 0x40045431,
    "TCGETS2": 0x802C542A,
}
"""Requests that query terminals and set blocking modes: the only ioctls of an ordinary program."""
_LOW_32_BITS: Final = 0xFFFFFFFF
_FILE_TYPES: Final = (0, 0o010000, 0o100000, 0o140000)
"""Unspecified (a regular file), pipe, regular and socket: the node types that are not devices."""
_ARCHITECTURES: Final = ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")

Rule = dict[str, Any]


def build_profile(*, network: bool = False) -> dict[str, Any]:
    """Build the profile with Unix sockets, and with TCP sockets of IPv4 for a program with a `network`.

    Calls of unlisted 32-bit architectures end the process.
    """
    mask = sum(NAMESPACE_FLAGS)
    rules = [
        _allow(*ALLOWED),
        _allow("socket", _equal(0, AF_UNIX)),
        *(_list_tcp() if network else [_allow("setsockopt")]),
        _allow("socketpair", _equal(0, AF_UNIX)),
        _allow("prlimit64", _equal(0, OWN_PROCESS)),
        _allow("clone", _equal(0, 0, mask=mask)),
        *(_allow("mknod", _equal(1, kind, mask=S_IFMT)) for kind in _FILE_TYPES),
        *(_allow("mknodat", _equal(2, kind, mask=S_IFMT)) for kind in _FILE_TYPES),
        *(_allow("ioctl", _equal(1, request, mask=_LOW_32_BITS)) for request in _IOCTLS.values()),
        {"names": list(UNKNOWN), "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
    ]
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [{"architecture": name, "subArchitectures": []} for name in _ARCHITECTURES],
        "syscalls": rules,
    }


def _list_tcp() -> list[Rule]:
    stream = _equal(1, SOCK_STREAM, mask=SOCKET_TYPE_BITS)
    between = range(SO_ATTACH_FILTER + 1, FIRST_REFUSED_SOCKET_OPTION)
    return [
        *(_allow("socket", _equal(0, AF_INET), stream, _equal(2, protocol)) for protocol in (0, TCP)),
        _allow("setsockopt", _equal(1, SOL_SOCKET), _below(2, SO_ATTACH_FILTER)),
        # A rule can't compare one argument twice, so the options of a range are one rule each.
        *(_allow("setsockopt", _equal(1, SOL_SOCKET), _equal(2, option)) for option in between),
        _allow("setsockopt", _equal(1, TCP), _below(2, FIRST_REFUSED_TCP_OPTION)),
    ]


def build_node_profile() -> dict[str, Any]:
    """The profile as a file for the nodes of a cluster, whose container runtimes read the format of OCI: it lists no
    architectures, and so allows the node's own only."""
    return {name: value for name, value in build_profile().items() if name != "archMap"}


def _allow(*names: str | Rule) -> Rule:
    conditions = [name for name in names if isinstance(name, dict)]
    return {"names": [name for name in names if isinstance(name, str)], "action": "SCMP_ACT_ALLOW", "args": conditions}


def _equal(index: int, value: int, *, mask: int | None = None) -> Rule:
    """A condition on one argument, or on its bits in `mask`."""
    if mask is None:
        return {"index": index, "value": value, "op": "SCMP_CMP_EQ"}
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def _below(index: int, value: int) -> Rule:
    return {"index": index, "value": value, "op": "SCMP_CMP_LT"}


if __name__ == "__main__":
    json.dump(build_node_profile(), sys.stdout, indent=1)
