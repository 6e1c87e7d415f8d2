"""A control group for one run, version 1 or 2, where this process can create one; it limits memory and processes."""

import contextlib
import fcntl
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from everturn.execution.messages import LimitName, RunLimits

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
NAME_PREFIX: Final = "everturn-"
_REMOVE_WAIT_S: Final = 1.0
_LEFTOVER_AGE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The folders of one run's group: one in version 2, one per controller in version 1.

    `locks` are open descriptors of the folders, locked until the group is removed or this process ends: the group of a
    killed program has no processes, and no other supervisor may remove it before its counters were read.
    """

    version: int
    memory: Path
    processes: Path
    locks: tuple[int, ...] = field(default=(), compare=False)

    def folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.memory, self.processes)))

    def join(self) -> None:
        """Move the calling process into the group; call it between fork and exec, before the uid is dropped."""
        for folder in self.folders():
            (folder / "cgroup.procs").write_text("0")

    def load_hits(self) -> tuple[LimitName, ...]:
        """The limits that the kernel enforced."""
        memory_file = "memory.events" if self.version == 2 else "memory.oom_control"
        hits: list[LimitName] = []
        if _load_counter(self.memory / memory_file, "oom_kill"):
            hits.append("memory")
        if _load_counter(self.processes / "pids.events", "max"):
            hits.append("processes")
        return tuple(hits)

    def remove(self) -> None:
        """Delete the folders, then close the locks; call it once. The kernel releases the folders shortly after the
        last process has ended."""
        _remove(self.folders())
        for lock in self.locks:
            os.close(lock)


def try_create_cgroup(
    execution_id: str, limits: RunLimits, own_processes: int, *, root: Path = CGROUP_ROOT, own: str | None = None
) -> Cgroup | None:
    """Create a group with the run's limits, below (version 1) or next to (version 2) this process's own; None if
    impossible.

    `own_processes` of the group are not the program's. `own` is the text of `/proc/self/cgroup`.
    """
    run_name = f"{NAME_PREFIX}{execution_id}"
    paths = parse_own_cgroups(Path("/proc/self/cgroup").read_text(encoding="ascii") if own is None else own)
    for cgroup in _candidates(run_name, paths, root):
        remove_leftovers(cgroup)
        made: list[Path] = []
        try:
            for folder in cgroup.folders():
                folder.mkdir()
                made.append(folder)
            _save_limits(cgroup, limits, own_processes)
            return replace(cgroup, locks=_lock_all(cgroup.folders()))
        except OSError:
            _remove(made)
    return None


def remove_leftovers(beside: Cgroup) -> None:
    """Remove the groups of runs whose supervisor was killed: those that nobody has locked. A group with processes in it
    can't be removed."""
    oldest = time.time() - _LEFTOVER_AGE_S
    for parent in {folder.parent for folder in beside.folders()}:
        for folder in parent.glob(f"{NAME_PREFIX}*"):
            with contextlib.suppress(OSError):
                # A younger one may have been created just now, and is not locked yet.
                if folder.stat().st_mtime < oldest:
                    for lock in _lock_all([folder]):
                        _try_remove(folder)
                        os.close(lock)


def _lock_all(folders: Sequence[Path]) -> tuple[int, ...]:
    """Open descriptors that hold the locks. Raises OSError, and holds none, if another process holds one."""
    with contextlib.ExitStack() as stack:
        locks: list[int] = []
        for folder in folders:
            locks.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            stack.callback(os.close, locks[-1])
            fcntl.flock(locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        stack.pop_all()
        return tuple(locks)


def parse_own_cgroups(text: str) -> dict[str, str]:
    """Path by controller; version 2 has the empty key."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _candidates(run_name: str, paths: dict[str, str], root: Path) -> list[Cgroup]:
    found: list[Cgroup] = []
    if "memory" in paths and "pids" in paths:
        memory = _below(root / "memory", paths["memory"]) / run_name
        found.append(Cgroup(1, memory, _below(root / "pids", paths["pids"]) / run_name))
    elif "" in paths:
        # A group that holds processes can't have limited children, so its sibling is tried after its child.
        place = _below(root, paths[""])
        for parent in (place, place.parent):
            if parent.is_relative_to(root) and _offers_limits(parent):
                found.append(Cgroup(2, parent / run_name, parent / run_name))
    return found


def _below(root: Path, path: str) -> Path:
    """The folder of this process's group. In a container the path can be the host's; then the mount itself is the
    group."""
    place = root / path.lstrip("/")
    return place if place.is_dir() else root


def _offers_limits(parent: Path) -> bool:
    control = parent / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        return {"memory", "pids"} <= set(control.read_text(encoding="ascii").split())
    return False


def _save_limits(cgroup: Cgroup, limits: RunLimits, own_processes: int) -> None:
    (cgroup.processes / "pids.max").write_text(str(limits.processes + own_processes))
    if cgroup.version == 2:
        (cgroup.memory / "memory.max").write_text(str(limits.memory_bytes))
        swap, value = cgroup.memory / "memory.swap.max", "0"
    else:
        (cgroup.memory / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
        swap, value = cgroup.memory / "memory.memsw.limit_in_bytes", str(limits.memory_bytes)
    if swap.exists():
        swap.write_text(value)


def _load_counter(file: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in file.read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def _remove(folders: Sequence[Path]) -> None:
    deadline = time.monotonic() + _REMOVE_WAIT_S
    for folder in folders:
        while not _try_remove(folder) and time.monotonic() < deadline:
            time.sleep(0.005)


def _try_remove(folder: Path) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
