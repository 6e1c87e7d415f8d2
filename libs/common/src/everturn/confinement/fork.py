"""Runs code that reads a stranger's bytes in a fork that is kept from processes, files, sockets and forks of its own.

The process that forks has loaded the libraries, so a fork costs milliseconds, and what a file does to the libraries
ends with its fork.
"""

import codecs
import ctypes
import encodings
import errno
import os
import pkgutil
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from everturn.confinement.system_calls import allow_only_computing

NOBODY = 65534
_ANSWER = 3
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class ForkLimits:
    """What one fork may use. `memory_bytes` is beside what the process had before it forked; `wall_s` is the limit of
    last resort, because a fork that a busy machine keeps waiting has done nothing wrong."""

    memory_bytes: int
    cpu_s: float
    wall_s: float
    answer_bytes: int


@dataclass(frozen=True, slots=True)
class ForkResult:
    """`ended` says how: with its answer, at one of its time limits, or in any other way. Only the first has one."""

    ended: Literal["answered", "time", "failed"]
    answer: bytes = b""


def hide_process() -> None:
    """From now on no process of this user may read this one's memory, environment or descriptors, or trace it."""
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def preload_encodings() -> None:
    """A confined fork can't open the module of an encoding that it meets."""
    for module in pkgutil.iter_modules(encodings.__path__):
        # Some are for another system, and some modules are no encodings.
        with suppress(LookupError, ImportError):
            codecs.lookup(module.name)


def run_confined(work: Callable[[], bytes], limits: ForkLimits) -> ForkResult:
    """What `work` gives in a fork that can do nothing else. The process must have one thread only."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        _end_fork(work, write_end, limits)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = pipe.read(limits.answer_bytes)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        return ForkResult("answered", answer)
    return ForkResult("time" if -status in (signal.SIGPROF, signal.SIGALRM, signal.SIGXCPU) else "failed")


def _end_fork(work: Callable[[], bytes], write_end: int, limits: ForkLimits) -> None:
    """Never returns: an exception of a library ends the fork with a status that says so."""
    status = 1
    try:
        answer = _confine(write_end, limits)
        with os.fdopen(answer, "wb", closefd=False) as pipe:
            pipe.write(work()[: limits.answer_bytes])
        status = 0
    finally:
        os._exit(status)


def _confine(answer: int, limits: ForkLimits) -> int:
    """For good: only the `answer` stays open, under the descriptor that is returned, and nothing more can be opened.

    The descriptors of the process are closed: through them a bad file could read the next one, or answer for it.
    """
    size_bytes = _load_size_bytes() + limits.memory_bytes
    _keep_only(answer)
    _become_nobody()
    hide_process()
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for what, limit in (
        (resource.RLIMIT_AS, size_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, _ANSWER + 1),
    ):
        resource.setrlimit(what, (limit, limit))
    # Timers without handlers: the kernel ends the fork whatever code it is in.
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_s)
    # Last, because it takes away the calls that everything above needs. The limit of descriptors alone would not do:
    # code that took over the fork could close one of them and open another.
    allow_only_computing()
    return _ANSWER


def _keep_only(answer: int) -> None:
    os.dup2(answer, _ANSWER)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(_ANSWER):
        os.dup2(nothing, standard)
    os.closerange(_ANSWER + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _become_nobody() -> None:
    """For root only, which could lift all limits. A container may have taken the right to do so, or know no such user;
    then they stand, because only the machine's own root lifts them."""
    if os.geteuid() != 0:
        return
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise


def _load_size_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as numbers:
        return int(numbers.read().split()[0]) * resource.getpagesize()
