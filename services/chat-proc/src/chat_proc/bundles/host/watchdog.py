"""The parent of a host process, which leaves nothing behind: `python -I -S watchdog.py`, with its plan as the first
line of its input.

It starts the command of the plan with limits, and ends with its exit status. It kills everything that the command has
started, also in other sessions, when the command ends, takes too much disk space, or when its own input ends. The
worker ends it with a line; a worker that was killed does not, and then the watchdog removes its files too. Standard
library only, because it runs without site-packages.
"""

import ctypes
import errno
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
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = (_RETURN, 0, 0, 0x7FFF_0000), (_RETURN, 0, 0, 0x0005_0000 | errno.EACCES)
_NOT_PERMITTED = (_RETURN, 0, 0, 0x0005_0000 | errno.EPERM)
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32 = 0x4000_0000
_SYSTEM_CALLS = {
    # The architecture, socket, socketpair, and shmget, shmat, semget, msgget, mq_open, io_uring_setup.
    "x86_64": (0xC000_003E, 41, 53, (29, 30, 64, 68, 240, 425)),
    "aarch64": (0xC000_00B7, 198, 199, (194, 196, 190, 186, 180, 425)),
}
_OF_PROCESSES = {
    # sched_setparam, sched_setscheduler, sched_setaffinity, prlimit64, sched_setattr; setpriority, ioprio_set; fcntl,
    # ioctl.
    "x86_64": ((142, 144, 203, 302, 314), (141, 251), (72, 16)),
    "aarch64": ((118, 119, 122, 261, 274), (140, 30), (25, 29)),
}
"""Calls that change any process of their user: by its number as their first argument, by a kind and a number, and by
commands."""
_KINDS_OF_ONE = (0, 1)
"""The kinds of setpriority and ioprio_set for one process or thread. The others are groups and users."""
_SIGNALS = {
    # pidfd_send_signal; kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo.
    "x86_64": (424, (62, 200, 234, 129, 297)),
    "aarch64": (424, (129, 130, 131, 138, 240)),
}
_OWNERS = ((8, 15), (0x8901, 0x8902))
"""Commands of fcntl and ioctl that name a process, which gets any signal once a file is ready."""
_FAMILIES = (2, 10, 16)
"""IPv4, IPv6, and netlink, with which libraries read addresses of interfaces."""
_PAIRS = (1, 5)
"""Pairs of streams and of sequences of packets: one of datagrams could be connected to another socket."""
_RESERVED = 4
_FIRST_TO_END = 1000
"""If memory is short, the kernel ends this process rather than the worker."""
_MAX_THREADS = 1 << 16
_OTHERS_START = 128
"""Threads that the worker and other services of its user can start later, which count as this process's."""
_KILL_WITHIN_S = 5.0
_PAUSE_S = 0.01
_CANT_START = 126
TOO_LARGE = 125
"""The status of a command that has taken more disk space than it may."""
_MEASURE_EVERY_S = 2.0
_MAX_FILES, _MAX_DEPTH = 50_000, 64
_BLOCK_BYTES = 512
_SHARED = "/dev/shm"  # noqa: S108 - semaphores of multiprocessing are there
_SMALL_SHARED_BYTES = 64 << 20
"""As container engines make it for each container."""


def main(plan: Mapping[str, Any]) -> int:
    # The worker's event loop lets its children inherit copies of their input and output, also of this one's.
    given = plan["descriptor"]
    os.closerange(3, max(3, given))
    os.closerange(max(3, given + 1), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    libc = ctypes.CDLL(None, use_errno=True)
    # Processes whose parents have ended become children of this one, so that it finds them.
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    watchdog = os.getpid()
    started = os.fork()
    if started == 0:
        _run(libc, plan, watchdog)
    with suppress(OSError):
        os.close(given)
    status = None
    ready: list[int] = []
    measured_s = time.monotonic()
    while status is None and 0 not in ready:
        ready = select.select([0, woken], [], [], _MEASURE_EVERY_S)[0]
        if woken in ready:
            os.read(woken, 4096)
            status = _reap(started)
        if status is None and plan["home"] and time.monotonic() - measured_s >= _MEASURE_EVERY_S:
            status = None if fits(plan["home"], plan["disk_bytes"], plan["uid"]) else TOO_LARGE
            measured_s = time.monotonic()
    _kill_all(watchdog)
    if plan["uid"] is not None:
        _remove_shared(plan["uid"])
    if 0 in ready and not os.read(0, 1):
        remove_tree(plan["root"])
    # A command that was killed by a signal ends as a shell would report it.
    return 0 if status is None else status if status >= 0 else 128 - status


def remove_tree(folder: str) -> None:
    """Remove a folder whatever an author's code has left in it: names nested beyond every limit of Python, and folders
    that nobody can list."""
    # The watchdog seldom needs it, and starts sooner without it.
    import subprocess  # noqa: PLC0415 - see above

    commands = (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"])
    for command in commands if folder else ():
        subprocess.run([*command, "--", folder], check=False, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not os.path.lexists(folder):
            return


def fits(folder: str, limit_bytes: int, uid: int | None = None) -> bool:
    """Whether the files of a folder, and those of the user in shared memory, take no more than this, and are not too
    many or nested too deep to measure. Space of removed files that are still open is not counted."""
    left = [limit_bytes, _MAX_FILES]
    try:
        _subtract(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), left, _MAX_DEPTH)
        if uid is not None and os.path.isdir(_SHARED):
            _subtract(os.open(_SHARED, os.O_RDONLY | os.O_DIRECTORY), left, _MAX_DEPTH, uid)
    except OSError:
        # It can't be listed: the author has closed it to itself.
        return False
    return min(left) >= 0


def _subtract(opened: int, left: list[int], depth: int, uid: int | None = None) -> None:
    try:
        with os.scandir(opened) as entries:
            for entry in entries:
                if min(left) < 0:
                    return
                # What is removed meanwhile takes no space.
                with suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    if uid not in {None, about.st_uid}:
                        continue
                    left[0] -= about.st_blocks * _BLOCK_BYTES
                    left[1] -= 1
                    if entry.is_dir(follow_symlinks=False):
                        if depth == 0:
                            left[1] = -1
                            return
                        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                        _subtract(os.open(entry.name, flags, dir_fd=opened), left, depth - 1)
    finally:
        os.close(opened)


def _remove_shared(uid: int) -> None:
    """Remove what this user has in shared memory, unless it has another process that may use it."""
    if not any(_is_of(f"/proc/{name}", uid) for name in os.listdir("/proc") if name.isdigit()):
        names = os.listdir(_SHARED) if os.path.isdir(_SHARED) else []
        for path in (f"{_SHARED}/{name}" for name in names):
            if _is_of(path, uid):
                remove_tree(path)


def _is_of(path: str, uid: int) -> bool:
    try:
        return os.lstat(path).st_uid == uid
    except OSError:
        # It is gone.
        return False


def _shares_memory(uid: int | None) -> bool:
    """Whether it gets the folder of shared memory: with a user of its own, whose files are counted and removed. Without
    one nothing distinguishes them from those of others, so only if little fits into it."""
    try:
        about = os.statvfs(_SHARED)
    except OSError:
        return False
    return uid is not None or about.f_blocks * about.f_frsize <= _SMALL_SHARED_BYTES


def _run(libc: ctypes.CDLL, plan: Mapping[str, Any], watchdog: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        _write("/proc/self/oom_score_adj", str(_FIRST_TO_END))
        processes = plan["processes"]
        if plan["uid"] is not None:
            _open_ways(libc, plan["shown"])
            os.setgroups([])
            os.setresgid(plan["uid"], plan["uid"], plan["uid"])
            os.setresuid(plan["uid"], plan["uid"], plan["uid"])
        else:
            processes += _count_threads() + _OTHERS_START
        for what, limit in (
            (resource.RLIMIT_DATA, plan["memory_bytes"]),
            # Memory that processes share is limited by this one only. It counts what libraries reserve and never use.
            (resource.RLIMIT_AS, _RESERVED * plan["memory_bytes"]),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, plan["file_bytes"]),
            (resource.RLIMIT_NOFILE, plan["open_files"]),
            (resource.RLIMIT_NPROC, processes),
        ):
            # Only root can raise a limit that the worker itself has.
            allowed = limit if (hard := resource.getrlimit(what)[1]) == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(what, (allowed, allowed))
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        # After the change of user, which would clear it.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == watchdog:
            if plan["descriptor"] >= 0:
                os.set_inheritable(plan["descriptor"], True)
            if plan["speaks"]:
                os.dup2(plan["descriptor"], 0)
                os.dup2(plan["descriptor"], 1)
            os.chdir(plan["folder"])
            # Other users run what is installed; a process with a user of its own shares nothing.
            os.umask(0o022 if plan["uid"] is None else 0o077)
            if plan["readable"]:
                writable = [*plan["writable"], *([_SHARED] if _shares_memory(plan["uid"]) else [])]
                hides_signals = _hide_files(libc, plan["readable"], writable)
                _refuse_calls(libc, limits_signals=plan["uid"] is None and not hides_signals)
            os.execve(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606 - the worker decides on it
    except (OSError, ValueError, KeyError) as error:
        _warn(f"The process can't be started: {error}")
    os._exit(_CANT_START)


def _open_ways(libc: ctypes.CDLL, shown: Sequence[str]) -> None:
    """Make these files and folders reachable for other users if one above them is not, such as the home of root: in a
    view of the file system of its own, which has nothing else of that folder."""
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
            if os.path.isdir(f"/proc/self/fd/{descriptor}"):
                os.makedirs(path, mode=0o755, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
                _write(path, "")
            _check(libc.mount(f"/proc/self/fd/{descriptor}".encode(), path.encode(), None, _MS_BIND, None))
            os.close(descriptor)


def _hide_files(libc: ctypes.CDLL, readable: Sequence[str], writable: Sequence[str]) -> bool:
    """Landlock: from now on this process and its children reach no other files, and signal no other processes; returns
    whether the kernel is new enough for the latter. It works for every user and in containers; a kernel without it is
    reported."""
    version = libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        _warn("This kernel has no Landlock, so code of the bundle can read the files of the worker's user.")
        return False
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
    return version > 5


def _refuse_calls(libc: ctypes.CDLL, *, limits_signals: bool) -> None:
    """From now on this process and its children open no sockets but those of the internet, and share no memory or
    queues with other processes of their user, nor change their limits and priorities. Permissions of files alone would
    let them reach the socket of a broker, and Landlock does not look at connections."""
    machine = os.uname().machine
    if machine not in _SYSTEM_CALLS:
        _warn(f"There is no filter of system calls for {machine}, so code of the bundle can reach Unix sockets.")
        return
    architecture, open_socket, open_pair, refused = _SYSTEM_CALLS[machine]
    code = [(_LOAD, 0, 0, _ARCHITECTURE_AT), (_EQUAL, 1, 0, architecture), _REFUSE]
    code += [(_LOAD, 0, 0, _NUMBER_AT), (_AT_LEAST, 0, 1, _X32), _REFUSE]
    for number in refused:
        code += [(_EQUAL, 0, 1, number), _REFUSE]
    for number, argument, mask, allowed in ((open_socket, 0, 0xFFFF_FFFF, _FAMILIES), (open_pair, 1, 0xF, _PAIRS)):
        checks = [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument), (_AND, 0, 0, mask)]
        for value in allowed:
            checks += [(_EQUAL, 0, 1, value), _ALLOW]
        code += [(_EQUAL, 0, len(checks) + 1, number), *checks, _REFUSE]
    by_number, by_kind, by_command = _OF_PROCESSES[machine]
    for number in by_number:
        code += [(_EQUAL, 0, 4, number), *_require(0, 0), _ALLOW]
    for number, kind in zip(by_kind, _KINDS_OF_ONE, strict=True):
        code += [(_EQUAL, 0, 7, number), *_require(0, kind), *_require(1, 0), _ALLOW]
    for number, commands in zip(by_command, _OWNERS, strict=True):
        checks = [(_LOAD, 0, 0, _ARGUMENTS_AT + 8)]
        for command in commands:
            checks += [(_EQUAL, 0, 1, command), _NOT_PERMITTED]
        code += [(_EQUAL, 0, len(checks) + 1, number), *checks, _ALLOW]
    if limits_signals:
        code += _build_signal_rules(*_SIGNALS[machine])
    packed = b"".join(struct.pack("=HBBI", *each) for each in (*code, _ALLOW))
    buffer = ctypes.create_string_buffer(packed)
    program = struct.pack("@HP", len(packed) // 8, ctypes.addressof(buffer))
    _check(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, program, 0, 0))


def _build_signal_rules(by_file: int, by_number: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Instructions that refuse signals to processes with lower numbers than this one's, to their groups, to its own
    group and to all: to what has started before it, such as its watchdog and the worker."""
    own = os.getpid()
    code = [(_EQUAL, 0, 1, by_file), _NOT_PERMITTED]
    for number in by_number:
        # Groups are negative numbers.
        lowest, beyond = (_AT_LEAST, 0, 1, own), (_AT_LEAST, 0, 1, (1 << 32) - own + 1)
        code += [(_EQUAL, 0, 5, number), (_LOAD, 0, 0, _ARGUMENTS_AT), lowest, beyond, _NOT_PERMITTED, _ALLOW]
    return code


def _require(argument: int, value: int) -> list[tuple[int, int, int, int]]:
    """Three instructions that refuse the call unless its argument has this value. 0 is the calling process or thread;
    the kernel reads numbers of processes from the lower 32 bits."""
    return [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument), (_EQUAL, 1, 0, value), _NOT_PERMITTED]


def _warn(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"its view of the system can't be limited: {os.strerror(number)}")


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


def _kill_all(watchdog: int) -> None:
    """Kill all descendants, again and again while they start others."""
    until_s = time.monotonic() + _KILL_WITHIN_S
    while time.monotonic() < until_s and (found := _find_descendants(watchdog)):
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)
        _reap(0)


def _find_descendants(watchdog: int) -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _read(f"/proc/{name}/stat")):
            parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    found = {watchdog}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {watchdog})


def _count_threads() -> int:
    """The threads of this user as the kernel counts them: also those of other containers, which /proc does not list.
    With so many as its limit, a process can't fork; with one more it can."""
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    low, high = 0, _MAX_THREADS if hard == resource.RLIM_INFINITY else min(_MAX_THREADS, hard)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _can_fork(middle, hard) else (middle, high)
    return low


def _can_fork(limit: int, hard: int) -> bool:
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))
    try:
        pid = os.fork()
    except BlockingIOError:
        return False
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        # The process has ended meanwhile.
        return ""


if __name__ == "__main__":
    # Without a buffer, which would also take the line that follows.
    with open(0, "rb", buffering=0, closefd=False) as from_worker:
        wanted = json.loads(from_worker.readline())
    sys.exit(main(wanted))
