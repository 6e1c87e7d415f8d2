"""A control group for one run, version 1 or 2, where this process can create one; it limits memory and processes."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn.execution.messages import LimitName, RunLimits

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
NAME_PREFIX: Final = "everturn-"
_REMOVE_WAIT_S: Final = 1.0
_LEFTOVER_AGE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The folders of one run's group: one in version 2, one per controller in version 1."""

    version: int
    memory: Path
    processes: Path

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
        """Delete the folders; the kernel releases them shortly after the last process has ended."""
        deadline = time.monotonic() + _REMOVE_WAIT_S
        for folder in self.folders():
            while not _try_remove(folder) and time.monotonic() < deadline:
                time.sleep(0.005)


def try_create_cgroup(
    execution_id: str, limits: RunLimits, *, root: Path = CGROUP_ROOT, own: str | None = None
) -> Cgroup | None:
    """Create a group with the run's limits, below (version 1) or next to (version 2) this process's own; None if
    impossible.

    `own` is the text of `/proc/self/cgroup`.
    """
    run_name = f"{NAME_PREFIX}{execution_id}"
    paths = parse_own_cgroups(Path("/proc/self/cgroup").read_text(encoding="ascii") if own is None else own)
    for cgroup in _candidates(run_name, paths, root):
        remove_leftovers(cgroup)
        try:
            for folder in cgroup.folders():
                folder.mkdir()
            _save_limits(cgroup, limits)
        except OSError:
            cgroup.remove()
        else:
            return cgroup
    return None


def remove_leftovers(beside: Cgroup) -> None:
    """Remove the groups of runs whose supervisor was killed; a group with processes in it can't be removed."""
    oldest = time.time() - _LEFTOVER_AGE_S
    for parent in {folder.parent for folder in beside.folders()}:
        for folder in parent.glob(f"{NAME_PREFIX}*"):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < oldest:
                    folder.rmdir()


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


def _save_limits(cgroup: Cgroup, limits: RunLimits) -> None:
    # Bubblewrap's two processes and the runner don't count as the program's.
    (cgroup.processes / "pids.max").write_text(str(limits.processes + 3))
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


def _try_remove(folder: Path) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
