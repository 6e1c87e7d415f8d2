"""Compares the machine before and after a test: everything that appeared must be gone at the end."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from leaks.engines import View
from leaks.processes import (
    Process,
    adopt_orphans,
    end_orphans,
    load_control_groups,
    load_descendants,
    load_run_folders,
)

LIMIT_S = 10.0
"""A run's end takes 2 s at most; the rest is for a busy machine."""

_POLL_EVERY_S = 0.05


class LeakedResources(AssertionError):
    """Something of a run is still on this machine."""


class Watch:
    """What has appeared since `before`. Folders and groups are known by the processes that were seen in them."""

    def __init__(self, before: frozenset[Process], views: Sequence[View]) -> None:
        self.folders: set[Path] = set()
        self.groups: set[Path] = set()
        self._kept: set[int] = set()
        self._before = before
        self._views = [(view, view.load_left()) for view in views]

    def keep(self, pid: int) -> None:
        """A process that the test has started for the tests after it, with all below it."""
        self._kept.add(pid)

    def load_processes(self) -> frozenset[Process]:
        return load_descendants(os.getpid(), frozenset(self._kept)) - self._before

    def look(self) -> frozenset[Process]:
        """Record what runs now."""
        processes = self.load_processes()
        self.folders |= load_run_folders(processes)
        self.groups |= load_control_groups(processes)
        return processes

    def load_left(self) -> list[str]:
        """What exists now and did not exist before, as text."""
        return sorted(self._load_left())

    def _load_left(self) -> Iterator[str]:
        yield from map(str, self.look())
        yield from (f"folder {folder}" for folder in self.folders if folder.exists())
        yield from (f"control group {group}" for group in self.groups if group.exists())
        for view, before in self._views:
            yield from view.load_left() - before

    async def run(self) -> None:
        """Check repeatedly, so that a short run is seen too."""
        while True:
            self.look()
            await asyncio.sleep(_POLL_EVERY_S)

    async def wait_nothing_left(self, limit_s: float = LIMIT_S) -> None:
        """Returns as soon as all is gone. Raises LeakedResources."""
        deadline = asyncio.get_running_loop().time() + limit_s
        while left := await asyncio.to_thread(self.load_left):
            if asyncio.get_running_loop().time() > deadline:
                end_orphans(self.load_processes())
                raise LeakedResources(f"after {limit_s:g} s there is still: " + "; ".join(left))
            await asyncio.sleep(_POLL_EVERY_S)


@asynccontextmanager
async def watching(*views: View) -> AsyncIterator[Watch]:
    """A watch that looks on for as long as the block lasts. It checks nothing by itself."""
    with adopt_orphans():
        watch = Watch(load_descendants(os.getpid()), views)
        looking = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            looking.cancel()
            await asyncio.wait([looking])
