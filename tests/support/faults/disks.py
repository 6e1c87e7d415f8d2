"""Small disks that a test fills and frees: a memory file system under a folder of the platform."""

import os
import shutil
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from everturn_local.supervision.platform import Platform
from faults.links import Links

MIB = 1 << 20
ROOMS = {"postgres": 128, "postgres/data/pg_wal": 48, "redis": 64, "objects": 256, "logs": 32, "tmp": 32}
"""Folders of a home, each a disk of its own with so many MiB free: room for six times 200 turns, too."""
PAGE = 4096
MAX_BYTES = 1 << 30
INODES = 20_000
"""More than the folder holds."""


class SmallDisk:
    def __init__(self, folder: Path, room_bytes: int) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        self._mount(room_bytes)

    def _mount(self, room_bytes: int) -> None:
        """With what the folder holds, and of the same owner."""
        self.folder.mkdir(exist_ok=True, mode=0o700)
        before = self.folder.with_name(f"{self.folder.name}.before")
        self.folder.rename(before)
        self.folder.mkdir()
        held = sum(path.lstat().st_blocks * 512 for path in before.rglob("*"))
        inodes = INODES + sum(1 for _ in before.rglob("*"))
        options = f"size={held + room_bytes},nr_inodes={inodes}"
        _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder))
        _run("cp", "--archive", f"{before}/.", str(self.folder))
        shutil.rmtree(before)

    def fill(self) -> None:
        """Until not a page and not a file more has room, also while others write."""
        self._ballast.mkdir()
        size = 0
        with (self._ballast / "bytes").open("wb") as file:
            for step in (MIB, PAGE):
                with suppress(OSError):
                    while size < MAX_BYTES:
                        os.posix_fallocate(file.fileno(), size, step)
                        size += step
        with suppress(OSError):
            for number in range(INODES):
                (self._ballast / str(number)).touch()

    def free(self) -> None:
        shutil.rmtree(self._ballast, ignore_errors=True)

    @contextmanager
    def filled(self) -> Generator[None]:
        self.fill()
        try:
            yield
        finally:
            self.free()

    def unmount(self) -> None:
        """What still has files open keeps them until it closes them."""
        _run("umount", "--lazy", str(self.folder))


class SmallDisksPlatform(Platform):
    """Each folder of ROOMS is a disk. Workers have their temporary files in `tmp`. Only root can mount: skips for
    others."""

    def __init__(self, home: Path, *, links: Links, env: Mapping[str, str], **settings: Any) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can mount a disk")
        super().__init__(home, specs=links.build_specs, env={**env, "TMPDIR": str(home / "tmp")}, **settings)
        self.disks: dict[str, SmallDisk] = {}

    async def start(self) -> None:
        for name, room in ROOMS.items():
            self.disks[name] = SmallDisk(self.home.root / name, room * MIB)
        await super().start()

    async def stop(self, **limits: float) -> None:
        await super().stop(**limits)
        for disk in reversed(self.disks.values()):
            disk.unmount()
        self.disks.clear()


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=60)
