"""Checks of the confinement before a program runs, and the program's limits."""

import ctypes
import os
import resource
from collections.abc import Sequence
from typing import Final

from everturn.execution.messages import RunLimits

MAX_PENDING_SIGNALS: Final = 1024
"""Queued signals and timers of one run. The kernel counts them per user, and every run has a user of its own."""

_PR_SET_DUMPABLE: Final = 4
_COUNTS: Final = ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max")


def find_failures() -> tuple[str, ...]:
    """The violations of the confinement, as sentences; empty if there are none."""
    with open("/proc/self/status", encoding="ascii") as status, open("/proc/net/dev", encoding="ascii") as devices:
        return check_confinement(
            status=status.read(),
            devices=devices.read(),
            root_is_read_only=bool(os.statvfs("/").f_flag & os.ST_RDONLY),
            pid=os.getpid(),
        )


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
