"""Unix sockets for other processes: once its name exists, a socket accepts connections, from allowed users only."""

import os
import socket
import struct
from pathlib import Path
from typing import Final

BACKLOG: Final = 8
_PEER: Final = struct.Struct("3i")


def open_listener(path: Path, *, mode: int, uid: int = -1, gid: int = -1, backlog: int = BACKLOG) -> socket.socket:
    """A listening socket at `path` with this mode and owner; -1 leaves an owner as it is. Raises OSError."""
    unfinished = path.with_name(f".{path.name}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(str(unfinished))
        unfinished.chmod(mode)
        os.chown(unfinished, uid, gid)
        listener.listen(backlog)
        # Renamed once it is ready, so that a process that waits for the name needs no second handshake.
        unfinished.rename(path)
    except OSError:
        listener.close()
        unfinished.unlink(missing_ok=True)
        raise
    return listener


def load_peer_uid(peer: socket.socket) -> int:
    """The user at the other end when the connection was made, as this process sees it."""
    _, uid, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return uid
