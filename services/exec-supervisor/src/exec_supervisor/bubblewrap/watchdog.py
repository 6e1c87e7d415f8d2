"""The processes below a run, and their total memory for runs without a control group."""

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


def load_memory_bytes(root_pid: int, proc: Path = PROC) -> int:
    """Resident memory of a process and all below it, anonymous and shared, without mapped files on disk.

    Pages that a fork shares are counted per process, so the sum is an upper bound.
    """
    return sum(_load_resident_bytes(proc / str(pid)) for pid in load_descendants(root_pid, proc))


def load_descendants(root_pid: int, proc: Path = PROC) -> frozenset[int]:
    """A process and everything below it. Orphans stay below: the sandbox's first process adopts them."""
    children = _load_all_children(proc)
    found: set[int] = set()
    ahead = [root_pid]
    while ahead:
        pid = ahead.pop()
        if pid not in found:
            found.add(pid)
            ahead.extend(children.get(pid, ()))
    return frozenset(found)


def load_children(parent_pid: int, proc: Path = PROC) -> tuple[int, ...]:
    """The direct children of a process, including zombies."""
    return tuple(_load_all_children(proc).get(parent_pid, ()))


def _load_all_children(proc: Path) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and (parent := _try_load_parent(entry)):
            children.setdefault(parent, []).append(int(entry.name))
    return children


def _try_load_parent(entry: Path) -> int | None:
    try:
        stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def _load_resident_bytes(entry: Path) -> int:
    try:
        lines = (entry / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
