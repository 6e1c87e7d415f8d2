"""Folders that take long to fill: those that were used last are kept, in temporary files of this process."""

import asyncio
import errno
import fcntl
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from everturn.core.cancellation import acquire_in_thread

Key = TypeVar("Key", bound=Hashable)
Content = TypeVar("Content")


@dataclass(slots=True)
class _Filled(Generic[Content]):
    """A folder with its content. `users` have it open; one that is not `kept` is removed by the last of them."""

    path: Path
    content: Content | None = None
    size: int = 0
    users: int = 0
    kept: bool = True


@dataclass(slots=True)
class _Place(Generic[Content]):
    """What is kept under a key. The lock is held while the folder is filled."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    filled: _Filled[Content] | None = None


class KeptFolders(Generic[Key, Content]):
    """At most `max_kept` folders with at most `max_bytes` in total, beside those that are open."""

    def __init__(self, root: Path, *, max_kept: int, max_bytes: int) -> None:
        self._root = root
        self._max_kept = max_kept
        self._max_bytes = max_bytes
        self._places = OrderedDict[Key, _Place[Content]]()

    @asynccontextmanager
    async def open(
        self,
        key: Key,
        fill: Callable[[Path, Content | None], Awaitable[Content]],
        *,
        fits: Callable[[Content], bool] = lambda _: True,
    ) -> AsyncGenerator[tuple[Path, Content]]:
        """The folder of this key and its content, as long as it is open.

        `fill` gets the folder with its present content, or a new folder and None, and returns the content; it may add
        files and change none. If it fails, the folder is removed. A folder whose content does not `fit` is replaced.
        """
        place = self._places.setdefault(key, _Place())
        self._places.move_to_end(key)
        async with place.lock:
            filled, content = await self._fill(place, fill, fits)
            filled.users += 1
        try:
            await self._remove_old()
            yield filled.path, content
        finally:
            filled.users -= 1
            await _remove_unused(filled)

    async def _fill(
        self,
        place: _Place[Content],
        fill: Callable[[Path, Content | None], Awaitable[Content]],
        fits: Callable[[Content], bool],
    ) -> tuple[_Filled[Content], Content]:
        filled, place.filled = place.filled, None
        if filled is not None and filled.content is not None and not fits(filled.content):
            filled.kept = False
            await _remove_unused(filled)
            filled = None
        if filled is None:
            path = await acquire_in_thread(partial(tempfile.mkdtemp, dir=self._root), os.rmdir)
            filled = _Filled[Content](Path(path))
        try:
            content = await fill(filled.path, filled.content)
            filled.content, filled.size = content, await asyncio.to_thread(measure_folder, filled.path)
        except BaseException:
            filled.kept = False
            await _remove_unused(filled)
            raise
        place.filled = filled
        return filled, content

    async def _remove_old(self) -> None:
        """Remove what was used longest ago, until the rest keeps to the limits."""
        for key, place in list(self._places.items()):
            filled = [each.filled for each in self._places.values() if each.filled is not None]
            if len(filled) <= self._max_kept and sum(each.size for each in filled) <= self._max_bytes:
                return
            old = place.filled
            if not place.lock.locked() and (old is None or not old.users):
                del self._places[key]
                if old is not None:
                    old.kept = False
                    await _remove_unused(old)


async def _remove_unused(filled: _Filled[Any]) -> None:
    if not filled.kept and not filled.users:
        await asyncio.to_thread(shutil.rmtree, filled.path, ignore_errors=True)


def measure_folder(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(_size(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


@asynccontextmanager
async def open_root(prefix: str) -> AsyncGenerator[Path]:
    """A folder of temporary files of this process, whose name begins with `prefix`; it is removed at the end. What a
    process has left that was killed is removed by the next one."""
    root, lock = await acquire_in_thread(partial(_create_root, prefix), lambda created: _remove_root(*created))
    try:
        yield root
    finally:
        await asyncio.to_thread(_remove_root, root, lock)


def _create_root(prefix: str) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if (lock := _try_lock(left)) is not None:
            _remove_root(left, lock)
    root = Path(tempfile.mkdtemp(prefix=prefix))
    if (lock := _try_lock(root)) is None:
        raise OSError(errno.EAGAIN, "A new folder is locked already", str(root))
    return root, lock


def _try_lock(folder: Path) -> int | None:
    """None if another process holds the lock of the folder, or if it is not ours."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(opened).st_uid == os.geteuid():
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return opened
    except BlockingIOError:
        os.close(opened)
        return None
    os.close(opened)
    return None


def _remove_root(root: Path, lock: int) -> None:
    shutil.rmtree(root, ignore_errors=True)
    os.close(lock)
