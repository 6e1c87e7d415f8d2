"""Runs code that reads untrusted bytes in a fork without access to processes, files, sockets and further forks.

The forking process has loaded the libraries, so a fork costs milliseconds, and damage that a file does to the libraries
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
    """The limits of one fork. `memory_bytes` is in addition to the memory of the process before the fork. `wall_s` is a
    last resort, because a fork that waits on a busy machine is not at fault."""

    memory_bytes: int
    cpu_s: float
    wall_s: float
    answer_bytes: int


@dataclass(frozen=True, slots=True)
class ForkResult:
    """`ended`: with an answer, at one of the time limits, or in any other way. Only the first has an answer."""

    ended: Literal["answered", "time", "failed"]
    answer: bytes = b""


def hide_process() -> None:
    """From now on no process of this user can read this one's memory, environment or descriptors, or trace it."""
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def preload_encodings() -> None:
    """Import all encodings, because a confined fork can't import the module of an encoding it needs."""
    for module in pkgutil.iter_modules(encodings.__path__):
        # Some are for other systems, and some modules are not encodings.
        with suppress(LookupError, ImportError):
            codecs.lookup(module.name)


def run_confined(work: Callable[[], bytes], limits: ForkLimits) -> ForkResult:
    """Return the result of `work`, run in a fork that can do nothing else. The process must have only one thread."""
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
    """Never returns: an exception of a library ends the fork with a failure status."""
    status = 1
    try:
        answer = _confine(write_end, limits)
        with os.fdopen(answer, "wb", closefd=False) as pipe:
            pipe.write(work()[: limits.answer_bytes])
        status = 0
    finally:
        os._exit(status)


def _confine(answer: int, limits: ForkLimits) -> int:
    """Irreversibly confine this process: only `answer` stays open, under the returned descriptor, and no other can be
    opened.

    All other descriptors are closed: through them a malicious file could read the next one, or answer for it.
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
    # Timers without handlers: the kernel kills the fork in whatever code it is.
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_s)
    # Last, because it disables the calls that everything above needs. The limit of descriptors alone is not enough:
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
    """For root only, which could lift all limits. In a container the user may be missing or the call forbidden; then
    the limits still hold, because only root of the machine can lift them."""
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
