"""This broker's identity towards its engine: an id stored next to its socket and held by one process at a time."""

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Final

from everturn.core.errors import Conflict

_ID: Final = re.compile(r"[0-9a-f]{16}")


class SocketTaken(Conflict):
    """Another broker serves this socket."""


@contextlib.contextmanager
def hold_identity(socket_path: Path) -> Generator[str]:
    """The id that this socket's successive brokers share. Raises SocketTaken, OSError.

    The lock on the file proves that every earlier holder is dead: the kernel releases it with the process.
    """
    descriptor = os.open(f"{socket_path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SocketTaken(str(socket_path)) from error
        yield _load_or_save_id(descriptor)
    finally:
        os.close(descriptor)


def _load_or_save_id(descriptor: int) -> str:
    found = os.pread(descriptor, 64, 0).decode("ascii", "replace")
    if _ID.fullmatch(found):
        return found
    chosen = secrets.token_hex(8)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, chosen.encode("ascii"), 0)
    os.fsync(descriptor)
    return chosen
