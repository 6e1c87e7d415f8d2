"""Errors at the start of an embedded server."""

from pathlib import Path

from everturn.core.errors import EverturnError

LOG_TAIL_BYTES = 2_000


class ServerStartError(EverturnError):
    """An embedded server did not start."""

    @classmethod
    def from_log(cls, server: str, log: Path) -> "ServerStartError":
        tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip() if log.exists() else ""
        return cls(f"{server}; the end of {log}:\n{tail}")
