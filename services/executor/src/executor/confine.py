"""Checks of the confinement before a program runs, and the program's limits."""

import contextlib
import ctypes
import os
import resource
import signal
import socket
import struct
from collections.abc import Sequence
from typing import Final

from everturn.execution.messages import RunLimits
from everturn.execution.privileges import leave_root

MAX_PENDING_SIGNALS: Final = 1024
"""Queued signals and timers of one run. The kernel counts them per user, and every run has a user of its own."""

RUNNER_UID: Final = 1003
KILLER_UID: Final = 1004
"""The users of runner and killer where the supervisor is a process of the same container, which knows the same
numbers."""

PROGRAM_GID: Final = 1001

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_SECCOMP: Final = 22
_PR_SET_CHILD_SUBREAPER: Final = 36
_SECCOMP_MODE_FILTER: Final = 2
_X32_CALLS: Final = 0x40000000
_IO_URING_SETUP: Final = 425
_SOCKET_CALLS: Final = {"x86_64": (0xC000003E, 41, 53), "aarch64": (0xC00000B7, 198, 199)}
"""By machine: its number in a filter, and the numbers of the calls `socket` and `socketpair`."""

_OTHER_FAMILIES: Final = {"IPv4": 2, "IPv6": 10, "netlink": 16, "packet": 17, "vsock": 40}
_SECRETS: Final = ("environ", "fd", "maps", "mem", "root")
_OWN_DESCRIPTORS: Final = 5
"""The standard streams, and both directions of the line."""

_OOM_SCORE_PROGRAM: Final = 1000
_COUNTS: Final = ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max")


def become_runner(program_uid: int) -> None:
    """Leave root, in a container where the supervisor is a process too: from now on this process acts as the program's
    user, but has other real and saved users, so that it can end the program and the program can't signal it.

    Its parent can, as the saved user, and when that ends this process does. It inherits and reaps every orphan. Raises
    OSError.
    """
    leave_root(RUNNER_UID, program_uid, KILLER_UID, gid=PROGRAM_GID)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def become_program_user() -> None:
    """In the fork that becomes the program: give up the runner's user, if that is another one, and be killed before the
    runner when memory runs out."""
    real, effective, _ = os.getresuid()
    if real == effective:
        return
    os.setresuid(effective, effective, effective)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write(str(_OOM_SCORE_PROGRAM))
    hide_process()


def may_end_all() -> bool:
    """Whether all that this process may signal is part of its run."""
    real, effective, _ = os.getresuid()
    return os.getpid() == 1 or real != effective


def find_failures(*, shares_network: bool = False, shares_processes: bool = False) -> tuple[str, ...]:
    """The violations of the confinement, as sentences; empty if there are none.

    With `shares_network`, the devices belong to others: this process can then open Unix sockets only, from now on, and
    so can its children. With `shares_processes`, others are visible and this one is not the first: then users must
    separate it from its program, and both from all others.
    """
    with open("/proc/self/status", encoding="ascii") as status, open("/proc/net/dev", encoding="ascii") as devices:
        failures = check_confinement(
            status=status.read(),
            devices="" if shares_network else devices.read(),
            root_is_read_only=bool(os.statvfs("/").f_flag & os.ST_RDONLY),
            pid=1 if shares_processes else os.getpid(),
        )
    if shares_processes:
        failures += find_shared_users()
    if failures or not shares_network:
        return failures
    try:
        refuse_other_sockets()
    except OSError as error:
        return (f"its filter of sockets can't be loaded: {error.strerror}",)
    return tuple(f"it can open {name} sockets" for name, family in _OTHER_FAMILIES.items() if _can_open(family))


def find_shared_users(proc: str = "/proc") -> tuple[str, ...]:
    """The ways in which a program could reach its runner, or both could reach other processes, in one process
    namespace."""
    failures: list[str] = []
    real, effective, saved = os.getresuid()
    users = _load_users(proc)
    if effective in (real, saved):
        failures.append("its program could signal it")
    # A process can be signalled as its real and as its saved user.
    if any({found[0], found[2]} & {real, effective} for found in users.values()):
        failures.append("it or its program could signal another process")
    if users.get(os.getppid(), ())[:2] != (saved, effective):
        failures.append("no process would end it and its program")
    if os.getsid(0) != os.getpid():
        failures.append("it is in a session of other processes")
    failures += (
        f"it can read {name} of process {pid}"
        for pid in users
        for name in _SECRETS
        if _can_read(f"{proc}/{pid}/{name}")
    )
    if len(os.listdir(f"{proc}/self/fd")) - 1 > _OWN_DESCRIPTORS:
        failures.append("it has descriptors of its supervisor")
    return tuple(failures)


def _load_users(proc: str) -> dict[int, tuple[int, ...]]:
    """Real, effective, saved and file system user of each other process."""
    found: dict[int, tuple[int, ...]] = {}
    for name in os.listdir(proc):
        if name.isdigit() and int(name) != os.getpid():
            with (
                contextlib.suppress(OSError),
                open(f"{proc}/{name}/status", encoding="utf-8", errors="replace") as file,
            ):
                found[int(name)] = tuple(map(int, file.read().partition("\nUid:")[2].partition("\n")[0].split()))
    return found


def _can_read(path: str) -> bool:
    with contextlib.suppress(OSError):
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").close()
        return True
    return False


def refuse_other_sockets() -> None:
    """Load a filter, besides any that is loaded, that refuses sockets of all families but Unix with EPERM.

    It is the wall between a program and the network where only the supervisor may use it: the containers of a Pod share
    one. Sockets could also be made through io_uring. Calls of other architectures end the process. Raises OSError.
    """
    code = build_socket_filter(os.uname().machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def build_socket_filter(machine: str) -> bytes:
    """The filter as BPF instructions for a machine such as `x86_64`. Raises OSError for another one."""
    if machine not in _SOCKET_CALLS:
        raise OSError(0, f"no filter is known for {machine}")
    architecture, make, make_pair = _SOCKET_CALLS[machine]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    allow, refuse, kill = 0x7FFF0000, 0x00050001, 0x80000000
    # Jumps count the instructions that are skipped; the last three are the answers.
    instructions = (
        (load, 0, 0, 4),
        (equal, 0, 9, architecture),
        (load, 0, 0, 0),
        (at_least, 6, 0, _X32_CALLS),
        (equal, 5, 0, _IO_URING_SETUP),
        (equal, 1, 0, make),
        (equal, 0, 2, make_pair),
        (load, 0, 0, 16),
        (equal, 0, 1, socket.AF_UNIX),
        (answer, 0, 0, allow),
        (answer, 0, 0, refuse),
        (answer, 0, 0, kill),
    )
    return b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)


def _can_open(family: int) -> bool:
    with contextlib.suppress(OSError):
        socket.socket(family, socket.SOCK_STREAM if family not in (16, 17) else socket.SOCK_RAW).close()
        return True
    return False


def check_confinement(*, status: str, devices: str, root_is_read_only: bool, pid: int) -> tuple[str, ...]:
    """The violations shown by the texts of `/proc/self/status` and `/proc/net/dev`."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    found = {name: value.split() for name, value in fields.items()}
    failures: list[str] = []
    if "0" in found.get("Uid", ["0"]) + found.get("Gid", ["0"]):
        failures.append("it runs as root")
    if any(int(found.get(name, ["1"])[0], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")):
        failures.append("it has capabilities")
    if found.get("NoNewPrivs") != ["1"]:
        failures.append("it can gain privileges")
    if found.get("Seccomp") != ["2"]:
        failures.append("no seccomp filter is loaded")
    if {line.split(":")[0].strip() for line in devices.splitlines()[2:]} - {"lo"}:
        failures.append("it has a network device")
    if not root_is_read_only:
        failures.append("its root is writable")
    if pid != 1:
        failures.append("it is not the first process of its sandbox")
    return tuple(failures)


def hide_process() -> None:
    """Hide this process's memory and descriptors from others of the same uid; a fork must reset this."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def confine_program(limits: RunLimits, address_space_bytes: int) -> None:
    """Set the permanent limits of the calling process, which becomes the program.

    The launcher has already made the sandbox the first to be killed when the machine runs out of memory.
    """
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    for kind, value in (
        (resource.RLIMIT_AS, address_space_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_SIGPENDING, MAX_PENDING_SIGNALS),
    ):
        _lower(kind, value, value)
    if not is_counted(_COUNTS):
        _lower(resource.RLIMIT_NPROC, limits.processes, limits.processes)
    _lower(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)


def _lower(kind: int, soft: int, hard: int) -> None:
    present = resource.getrlimit(kind)[1]
    if present != resource.RLIM_INFINITY:
        soft, hard = min(soft, present), min(hard, present)
    resource.setrlimit(kind, (soft, hard))


def is_counted(files: Sequence[str]) -> bool:
    """Whether a control group limits the processes: then one of `files` contains a number.

    RLIMIT_NPROC would be wrong there: it counts all processes of the user, which containers share.
    """
    for path in files:
        try:
            with open(path, encoding="ascii") as file:
                return file.read().strip().isdigit()
        except OSError:
            continue
    return False
