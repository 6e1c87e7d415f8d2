"""How much memory a run's processes hold together, for machines where no control group counts it."""

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


def load_memory_bytes(root_pid: int, proc: Path = PROC) -> int:
    """Resident memory of a process and all below it, anonymous and shared, without mapped files of the disk.

    Pages that a fork shares are counted for each process: the sum errs on the strict side.
    """
    return sum(_load_resident_bytes(proc / str(pid)) for pid in load_descendants(root_pid, proc))


def load_descendants(root_pid: int, proc: Path = PROC) -> frozenset[int]:
    """A process and everything below it. Orphans stay below: the sandbox's first process adopts them."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and (parent := _try_load_parent(entry)):
            children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    ahead = [root_pid]
    while ahead:
        pid = ahead.pop()
        if pid not in found:
            found.add(pid)
            ahead.extend(children.get(pid, ()))
    return frozenset(found)


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
