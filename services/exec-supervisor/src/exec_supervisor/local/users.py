"""The user of one run. The kernel counts watches, timers, pipe pages and processes per user, so runs share none."""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Generator
from pathlib import Path

from everturn.execution.messages import UidRange


@contextlib.contextmanager
def claim_user(uids: UidRange, folder: Path) -> Generator[int]:
    """Claim a uid of the range that no other run on this machine uses. Raises OSError if all are in use.

    Each claimed uid is a locked file in `folder`. The kernel releases the lock when this process ends, however it ends.
    """
    _make_lock_folder(folder)
    first = secrets.randbelow(uids.count)
    for number in range(uids.count):
        uid = uids.first + (first + number) % uids.count
        descriptor = os.open(folder / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            yield uid
        finally:
            os.close(descriptor)
        return
    raise OSError(
        errno.EAGAIN, f"all {uids.count} users of sandboxed programs are in use; widen the range in SANDBOX_UIDS"
    )


def _make_lock_folder(folder: Path) -> None:
    """Create the folder, or check its owner: any other user with write access could hold every uid."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise PermissionError(errno.EPERM, "this folder must belong to the supervisor's user alone", str(folder))
