"""Reads the file postmaster.pid, in which a Postgres server records its process and whether it is ready."""

from pathlib import Path

STATUS_LINE = 7


def try_load_postmaster_pid(data: Path) -> int | None:
    lines = _load_lines(data)
    try:
        return int(lines[0])
    except (IndexError, ValueError):
        return None


def is_ready(data: Path, pid: int) -> bool:
    """Whether the server with this pid accepts connections."""
    lines = _load_lines(data)
    return len(lines) > STATUS_LINE and lines[0] == str(pid) and lines[STATUS_LINE].strip() == "ready"


def _load_lines(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
