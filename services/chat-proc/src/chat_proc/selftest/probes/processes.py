"""Attempts on other processes: the runner, the supervisor if it is visible, other runs, the host's."""

import ctypes
import os
import signal
from functools import partial
from typing import Final

from chat_proc.selftest.probes.attempts import Denied, Group, Surroundings, call, try_each

PROCESSES: Final = Group("other processes")
GROUPS: Final = (PROCESSES,)
_ATTACH, _SEIZE = 16, 0x4206
_STATUS_NAMES: Final = ("Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
_IDS: Final = 3
"""How many of these are users and groups."""

_OURS: Final = 8
"""An upper bound for the launcher's own, the runner, an imported one, the program and its own children."""


@PROCESSES.attempt
def trace_the_runner(around: Surroundings) -> object:
    return try_each(partial(call, "ptrace", request, pid, 0, 0) for request in (_ATTACH, _SEIZE) for pid in _others())


@PROCESSES.attempt
def read_memory_of_the_runner_with_a_system_call(around: Surroundings) -> object:
    return try_each(partial(call, "process_vm_readv", pid, 0, 0, 0, 0, 0) for pid in _others())


@PROCESSES.attempt
def write_memory_of_the_runner_with_a_system_call(around: Surroundings) -> object:
    return try_each(partial(call, "process_vm_writev", pid, 0, 0, 0, 0, 0) for pid in _others())


@PROCESSES.attempt
def open_memory_of_the_runner(around: Surroundings) -> object:
    return try_each(partial(os.open, f"/proc/{pid}/mem", os.O_RDWR) for pid in _others())


@PROCESSES.attempt
def read_memory_of_the_runner(around: Surroundings) -> object:
    return try_each(partial(os.open, f"/proc/{pid}/mem", os.O_RDONLY) for pid in _others())


@PROCESSES.attempt
def open_a_descriptor_of_the_runner(around: Surroundings) -> object:
    return try_each(
        partial(os.open, f"/proc/{pid}/fd/{number}", flags)
        for pid in _others()
        for number in range(16)
        for flags in (os.O_WRONLY, os.O_RDONLY)
    )


@PROCESSES.attempt
def copy_a_descriptor_with_a_system_call(around: Surroundings) -> object:
    return try_each(partial(_take_descriptor, pid) for pid in _others())


@PROCESSES.attempt
def read_the_environment_of_the_runner(around: Surroundings) -> object:
    return try_each(partial(_read_bytes, f"/proc/{pid}/environ") for pid in _others())


@PROCESSES.attempt
def compare_itself_with_the_runner(around: Surroundings) -> object:
    return try_each(partial(call, "kcmp", os.getpid(), pid, 1, 0, 0) for pid in _others())


@PROCESSES.attempt
def advise_on_memory_of_the_runner(around: Surroundings) -> int:
    return call("process_madvise", -1, 0, 0, 0, 0)


@PROCESSES.attempt
def exempt_itself_from_the_oom_killer(around: Surroundings) -> None:
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("-1000")


@PROCESSES.attempt
def make_the_runner_the_first_oom_victim(around: Surroundings) -> object:
    return try_each(partial(_write_score, pid) for pid in _others())


@PROCESSES.attempt
def see_processes_of_the_host(around: Surroundings) -> str:
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    if len(pids) > _OURS or max(map(int, pids)) > os.getpid() + _OURS:
        return f"{len(pids)} processes"
    raise Denied(f"only {len(pids)} of its own")


@PROCESSES.attempt
def signal_a_process_of_the_host(around: Surroundings) -> object:
    """Far above the process ids in a run's namespace; signal 0 only checks."""
    return try_each(partial(os.kill, pid, 0) for pid in range(os.getpid() + 1000, os.getpid() + 3000))


@PROCESSES.attempt
def end_the_first_process(around: Surroundings) -> None:
    """The kernel shields the first process of a namespace from signals without a handler, including SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
        if os.getppid() != 1:
            os.kill(1, number)
    raise Denied("it lives on" if os.getppid() != 1 else "it is the runner; ending that ends this run")


@PROCESSES.attempt
def find_a_first_process_with_more_privileges(around: Surroundings) -> str:
    """If it shares our user, its memory may be accessible, so it must have no more rights. As another user it must have
    no capabilities either."""
    mine, first = _load_status("self"), _load_status("1")
    is_other = not {"0", *mine["Uid"].split()} & {*first["Uid"].split()}
    for name in _STATUS_NAMES[_IDS if is_other else 0 :]:
        if mine[name].split() != first[name].split():
            return f"{name} {first[name].strip()}"
    raise Denied(f"it has {'another user and ' if is_other else ''}the same restrictions")


@PROCESSES.attempt
def find_a_first_process_in_other_namespaces(around: Surroundings) -> str:
    try:
        kinds = os.listdir("/proc/1/ns")
        foreign = [kind for kind in kinds if os.readlink(f"/proc/1/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")]
    except PermissionError as refusal:
        raise Denied(str(refusal)) from refusal
    if foreign:
        return foreign[0]
    raise Denied("they are the same")


@PROCESSES.attempt
def let_all_processes_trace_it(around: Surroundings) -> int:
    """The reverse: being traceable by all is useless if no process may trace."""
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
    pid = os.fork()
    if pid == 0:
        os._exit(_try_trace(os.getppid()))
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise PermissionError("refused")
    return pid


def _try_trace(pid: int) -> int:
    try:
        call("ptrace", _SEIZE, pid, 0, 0)
    except OSError:
        return 1
    return 0


def _others() -> list[int]:
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid != os.getpid()]


def _take_descriptor(pid: int) -> int:
    handle = os.pidfd_open(pid)
    try:
        return call("pidfd_getfd", handle, 1, 0)
    finally:
        os.close(handle)


def _read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(100)


def _write_score(pid: int) -> None:
    with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")


def _load_status(pid: str) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return dict(line.split(":", 1) for line in status)
