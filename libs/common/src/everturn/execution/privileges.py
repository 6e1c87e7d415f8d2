"""How a process of a run gives up root for good, where its container has no engine that starts it as another user.

Images of runs contain this module, so it needs the standard library only.
"""

import ctypes
import errno
import os
from collections.abc import Sequence
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_MAX_CAPABILITIES: Final = 64


def leave_root(real_uid: int, effective_uid: int, saved_uid: int, *, gid: int, groups: Sequence[int] = ()) -> None:
    """Become these users without capabilities, and unable to gain any.

    Other users then can't read this process's memory, descriptors or environment. Needs CAP_SETUID, CAP_SETGID and
    CAP_SETPCAP. Raises OSError; then end the process, because it is in between.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def control(option: int, value: int) -> int:
        """Returns the number of the error, 0 for none."""
        return ctypes.get_errno() if libc.prctl(option, value, 0, 0, 0) else 0

    _check(control(_PR_SET_NO_NEW_PRIVS, 1))
    _check(control(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL))
    for capability in range(_MAX_CAPABILITIES):
        if (problem := control(_PR_CAPBSET_DROP, capability)) == errno.EINVAL:
            break  # the kernel has no more
        _check(problem)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(real_uid, effective_uid, saved_uid)
    # The kernel sets it to the machine's default when the user changes.
    _check(control(_PR_SET_DUMPABLE, 0))


def _check(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))
