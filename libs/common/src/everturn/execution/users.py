"""The user of one run or of one process of a bundle. The kernel counts watches, timers, pipe pages and processes per
user, so they share none."""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

from everturn.execution.messages import UidRange

USER_LOCKS: Final = "everturn-users"
"""The folder with the locks, in the one of `find_run_folder`."""
_RUN_FOLDERS: Final = ("/run", "/tmp")  # noqa: S108 - what is made there belongs to this user alone


def find_run_folder() -> str:
    """A folder for what this machine needs until its next start, which the users of runs can reach."""
    for folder in _RUN_FOLDERS:
        if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return tempfile.gettempdir()


@contextlib.contextmanager
def claim_user(uids: UidRange, folder: Path, setting: str) -> Generator[int]:
    """Claim a uid of the range that no other claim and no process on this machine uses. Raises OSError if all are in
    use; `setting` is where the range comes from.

    Each claimed uid is a locked file in `folder`. The kernel releases the lock when this process ends, however it ends;
    what it has started can run a little longer.
    """
    _make_lock_folder(folder)
    busy, first = find_owners_of_processes(), secrets.randbelow(uids.count)
    for number in range(uids.count):
        uid = uids.first + (first + number) % uids.count
        if uid in busy:
            continue
        with _try_lock(folder / str(uid)) as is_locked:
            # Again, under the lock: the last one that held it can have left processes meanwhile.
            if is_locked and uid not in find_owners_of_processes():
                yield uid
                return
    raise OSError(errno.EAGAIN, f"all {uids.count} users of {setting} are in use; widen the range")


@contextlib.contextmanager
def _try_lock(path: Path) -> Generator[bool]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def find_owners_of_processes() -> set[int]:
    """The users of all processes of this machine: about 6 ms for 1,000 processes."""
    found = set[int]()
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):  # it has just ended
            if name.isdigit():
                found.add(os.stat(f"/proc/{name}").st_uid)
    return found


def _make_lock_folder(folder: Path) -> None:
    """Create the folder, or check its owner: any other user with write access could hold every uid."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise PermissionError(
            errno.EPERM,
            "this folder must belong to the user of this process, and nobody else may write to it",
            str(folder),
        )
