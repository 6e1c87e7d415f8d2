"""The parent of a host process, which leaves nothing behind: `python -I -S keeper.py`, with its plan as the first line
of its input.

It starts the command of the plan with limits, and ends with its exit status. It kills everything that the command has
started, also in other sessions, when the command ends or when its own input does: a worker that was killed closes
it too. Standard library only, because it runs without site-packages.
"""

import ctypes
import json
import os
import resource
import select
import signal
import stat
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 0x1000, 0x4000, 1 << 18
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_READ = 0b1101
"""To execute and read files, and to list folders; the rights of files are the first three and that to truncate."""
_OF_FILES = 0b111 | 1 << 14
_RESERVED = 4
_KILL_WITHIN_S = 5.0
_PAUSE_S = 0.01
_CANT_START = 126


def main(plan: Mapping[str, Any]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    # Processes whose parents have ended become children of this one, so that it finds them.
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    keeper = os.getpid()
    started = os.fork()
    if started == 0:
        _run(libc, plan, keeper)
    with suppress(OSError):
        os.close(plan["descriptor"])
    status = None
    while status is None and 0 not in select.select([0, woken], [], [])[0]:
        os.read(woken, 4096)
        status = _reap(started)
    _kill_all(keeper)
    # A command that was killed by a signal ends as a shell would report it.
    return 0 if status is None else status if status >= 0 else 128 - status


def _run(libc: ctypes.CDLL, plan: Mapping[str, Any], keeper: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        processes = plan["processes"]
        if plan["uid"] is not None:
            _open_ways(libc, plan["shown"])
            os.setgroups([])
            os.setresgid(plan["uid"], plan["uid"], plan["uid"])
            os.setresuid(plan["uid"], plan["uid"], plan["uid"])
        else:
            # The kernel counts all threads of the user, also those of the worker.
            processes += _count_threads(os.getuid())
        for what, limit in (
            (resource.RLIMIT_DATA, plan["memory_bytes"]),
            # Memory that processes share is limited by this one only. It counts what libraries reserve and never use.
            (resource.RLIMIT_AS, _RESERVED * plan["memory_bytes"]),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, plan["file_bytes"]),
            (resource.RLIMIT_NOFILE, plan["open_files"]),
            (resource.RLIMIT_NPROC, processes),
        ):
            resource.setrlimit(what, (limit, limit))
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        # After the change of user, which would clear it.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == keeper:
            if plan["descriptor"] >= 0:
                os.set_inheritable(plan["descriptor"], True)
            if plan["speaks"]:
                os.dup2(plan["descriptor"], 0)
                os.dup2(plan["descriptor"], 1)
            os.chdir(plan["folder"])
            # Other users run what is installed; a process with a user of its own shares nothing.
            os.umask(0o022 if plan["uid"] is None else 0o077)
            if plan["readable"]:
                _hide_files(libc, plan["readable"], plan["writable"])
            os.execve(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606 - the worker decides on it
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"The process can't be started: {error}\n")
        sys.stderr.flush()
    os._exit(_CANT_START)


def _open_ways(libc: ctypes.CDLL, shown: Sequence[str]) -> None:
    """Make these folders reachable for other users if one above them is not, such as the home of root: in a view of the
    file system of its own, which has nothing else of that folder."""
    hidden: dict[str, list[str]] = {}
    for path in shown:
        above = [path[:end] for end, char in enumerate(path) if char == "/" and end > 0]
        closed = next((folder for folder in above if not os.stat(folder).st_mode & 0o001), None)
        if closed is not None:
            hidden.setdefault(closed, []).append(path)
    if not hidden:
        return
    _check(libc.unshare(_CLONE_NEWNS))
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    for closed, paths in hidden.items():
        opened = {path: os.open(path, os.O_PATH) for path in paths}
        _check(libc.mount(b"none", closed.encode(), b"tmpfs", 0, b"mode=0755,size=64k"))
        for path, descriptor in opened.items():
            os.makedirs(path, mode=0o755, exist_ok=True)
            _check(libc.mount(f"/proc/self/fd/{descriptor}".encode(), path.encode(), None, _MS_BIND, None))
            os.close(descriptor)


def _hide_files(libc: ctypes.CDLL, readable: Sequence[str], writable: Sequence[str]) -> None:
    """Landlock: from now on this process and its children reach no other files, and signal no other processes. It works
    for every user and in containers; a kernel without it is reported."""
    version = libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        sys.stderr.write(
            "This kernel has no Landlock, so code of the bundle can read the files of the worker's user.\n"
        )
        sys.stderr.flush()
        return
    everything = (1 << 13) - 1 | (1 << 13 if version > 1 else 0) | (1 << 14 if version > 2 else 0)
    rules = struct.pack("QQQ", everything, 0, 3)[: 24 if version > 5 else 16 if version > 3 else 8]
    ruleset = libc.syscall(_LANDLOCK_CREATE, rules, ctypes.c_size_t(len(rules)), 0)
    _check(min(ruleset, 0))
    for paths, rights in ((readable, _READ), (writable, everything)):
        for path in paths:
            try:
                opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                # Not every system has all of them.
                continue
            allowed = rights & (everything if stat.S_ISDIR(os.fstat(opened).st_mode) else _OF_FILES)
            rule = struct.pack("=Qi", allowed, opened)
            _check(libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0))
            os.close(opened)
    _check(libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"another user can't be given a view of the files: {os.strerror(number)}")


def _reap(started: int) -> int | None:
    """Collect all children that have ended; the exit status of the command if it is one of them."""
    status = None
    while True:
        try:
            pid, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == started:
            status = os.waitstatus_to_exitcode(raw)


def _kill_all(keeper: int) -> None:
    """Kill all descendants, again and again while they start others."""
    until_s = time.monotonic() + _KILL_WITHIN_S
    while time.monotonic() < until_s and (found := _find_descendants(keeper)):
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)
        _reap(0)


def _find_descendants(keeper: int) -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _read(f"/proc/{name}/stat")):
            parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    found = {keeper}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {keeper})


def _count_threads(uid: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and f"\nUid:\t{uid}\t" in (status := _read(f"/proc/{name}/status")):
            count += int(status.partition("\nThreads:\t")[2].split()[0])
    return count


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        # The process has ended meanwhile.
        return ""


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.stdin.buffer.readline())))
