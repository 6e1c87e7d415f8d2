"""The processes below this one, orphans too, and what they show of the run they belong to."""

import ctypes
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
RUN_FOLDER = re.compile(r"/\S*?everturn-run-[0-9a-f]+")
RUN_GROUP = re.compile(r"^\d+:([^:]*):(.*/everturn-[^/\n]+)$", re.MULTILINE)
CGROUP_ROOT = Path("/sys/fs/cgroup")
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Process:
    """A process of one moment; a number alone is used again."""

    pid: int
    started: int
    parent: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid}: {self.command[:120]}"


@contextmanager
def adopt_orphans() -> Iterator[None]:
    """Orphans of our children become our children, so that no process gets out of sight by losing its parent."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def load_descendants(root_pid: int, without: frozenset[int] = frozenset()) -> frozenset[Process]:
    """All that live below a process, `without` some and what is below them. Ended but not waited for doesn't count."""
    children: dict[int, list[Process]] = {}
    for process in _load_processes():
        children.setdefault(process.parent, []).append(process)
    found: set[Process] = set()
    ahead = list(children.get(root_pid, ()))
    while ahead:
        process = ahead.pop()
        if process.pid in without:
            continue
        found.add(process)
        ahead.extend(children.get(process.pid, ()))
    return frozenset(found)


def load_run_folders(processes: Iterable[Process]) -> frozenset[Path]:
    """The folders of runs that bubblewrap's processes name."""
    return frozenset(Path(folder) for process in processes for folder in RUN_FOLDER.findall(process.command))


def load_control_groups(processes: Iterable[Process]) -> frozenset[Path]:
    """The folders of the control groups that runs made for themselves."""
    found: set[Path] = set()
    for process in processes:
        with suppress(OSError):
            for controllers, path in RUN_GROUP.findall((PROC / str(process.pid) / "cgroup").read_text()):
                found.add(CGROUP_ROOT / controllers / path.lstrip("/"))
    return frozenset(found)


def _load_processes() -> Iterator[Process]:
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
                    yield Process(int(entry.name), int(fields[19]), int(fields[1]), command)


def end_orphans(processes: Iterable[Process]) -> None:
    """Kill what a failed test has left, so that the next one is not blamed for it."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, 9)
