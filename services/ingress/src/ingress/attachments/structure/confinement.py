"""What a fork that looks into a stranger's file is kept from: other processes, files, sockets, and forks of its own."""

import codecs
import ctypes
import errno
import os
import resource
import signal
from contextlib import suppress
from encodings.aliases import aliases

from ingress.attachments.structure.limits import CPU_S, MEMORY_BYTES, WALL_S

NOBODY = 65534
_ANSWER = 3
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_LIBC = ctypes.CDLL(None)


def hide_process() -> None:
    """From now on no process of this user may read this one's memory, environment or descriptors, or trace it."""
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def preload_encodings() -> None:
    """A confined fork can't open the module of an encoding that it meets."""
    for name in sorted(set(aliases.values())):
        with suppress(LookupError):
            codecs.lookup(name)


def confine_fork(answer: int) -> int:
    """For good: only the `answer` stays open, under the descriptor that is returned, and nothing more can be opened.

    The descriptors of the checker are closed: through them a bad file could read the next one, or answer for it.
    """
    size_bytes = _load_size_bytes() + MEMORY_BYTES
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
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    signal.setitimer(signal.ITIMER_REAL, WALL_S)
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
