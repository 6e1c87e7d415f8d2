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
from typing import Any, Final, Generic, TypeVar

from everturn.core.cancellation import acquire_in_thread, end_tasks
from everturn.core.errors import Unavailable
from everturn.core.loops import guarded

KEPT_S: Final = 900.0
"""Without a use. What a folder was made from can be erased by another process, of which this one does not hear."""
_CHECK_S: Final = 60.0
_ROOT_TRIES: Final = 10
"""Another process that starts can remove a new root before it is locked."""

Key = TypeVar("Key", bound=Hashable)
Content = TypeVar("Content")


class FillRefused(Unavailable):
    """The folder can't be filled now."""


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
    """What is kept under a key. The lock is held while the folder is filled. `used_at_s` is loop time."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    filled: _Filled[Content] | None = None
    used_at_s: float = 0.0
    is_removed: bool = False


class KeptFolders(Generic[Key, Content]):
    """At most `max_kept` folders with at most `max_bytes` in total that were used within `kept_s`. While those that are
    open have as much, no other one is filled."""

    def __init__(self, root: Path, *, max_kept: int, max_bytes: int, kept_s: float = KEPT_S) -> None:
        self._root = root
        self._max_kept = max_kept
        self._max_bytes = max_bytes
        self._kept_s = kept_s
        self._places = OrderedDict[Key, _Place[Content]]()
        self._open: list[_Filled[Content]] = []
        """Once for each user, also those that are not kept any more."""

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
        files and change none. If it fails, the folder is removed, unless it raises FillRefused before it changes
        anything. A folder whose content does not `fit` is replaced. Raises FillRefused if too much is open.
        """
        place = self._places.setdefault(key, _Place())
        self._places.move_to_end(key)
        place.used_at_s = asyncio.get_running_loop().time()
        async with place.lock:
            filled, content = await self._fill(place, fill, fits)
            filled.users += 1
            self._open.append(filled)
        try:
            await self._remove_old()
            yield filled.path, content
        except Unavailable:
            # It may be damaged. A user that is cancelled has only read it.
            filled.kept = False
            place.filled = None if place.filled is filled else place.filled
            raise
        finally:
            place.used_at_s = asyncio.get_running_loop().time()
            filled.users -= 1
            self._open.remove(filled)
            await _remove_unused(filled)

    async def remove(self, key: Key) -> None:
        """Remove the folder of this key, if there is one: now, or when it is not open any more."""
        place = self._places.pop(key, None)
        if place is not None:
            place.is_removed = True
            if place.filled is not None:
                place.filled.kept = False
                await _remove_unused(place.filled)

    @asynccontextmanager
    async def removing_unused(self) -> AsyncGenerator[None]:
        """Remove folders that are not used any more, also while none is opened."""
        removal = asyncio.create_task(self._run_removal(), name="kept folders")
        try:
            yield
        finally:
            await end_tasks(removal)

    async def _run_removal(self) -> None:
        while True:
            await asyncio.sleep(min(_CHECK_S, self._kept_s))
            with guarded("kept folders"):
                await self._remove_old()

    async def _fill(
        self,
        place: _Place[Content],
        fill: Callable[[Path, Content | None], Awaitable[Content]],
        fits: Callable[[Content], bool],
    ) -> tuple[_Filled[Content], Content]:
        if place.filled is None:
            self._check_room()
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
        except BaseException as error:
            if isinstance(error, FillRefused) and filled.content is not None and not place.is_removed:
                place.filled = filled
                raise
            filled.kept = False
            await _remove_unused(filled)
            raise
        place.filled = filled
        filled.kept = not place.is_removed
        return filled, content

    def _check_room(self) -> None:
        used = {id(each): each.size for each in self._open}
        if sum(used.values()) >= self._max_bytes:
            raise FillRefused("Too much is being read. Try again in a minute.")

    async def _remove_old(self) -> None:
        """Remove what was not used for too long, and what was used longest ago until the rest keeps to the limits."""
        unused_since_s = asyncio.get_running_loop().time() - self._kept_s
        for key, place in list(self._places.items()):
            filled = [each.filled for each in self._places.values() if each.filled is not None]
            is_full = len(filled) > self._max_kept or sum(each.size for each in filled) > self._max_bytes
            if not is_full and place.used_at_s > unused_since_s:
                continue
            old = place.filled
            # Others may have removed or replaced it during the removals before.
            is_current = self._places.get(key) is place
            if is_current and not place.lock.locked() and (old is None or not old.users):
                place.is_removed = True
                self._places.pop(key)
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
    for _ in range(_ROOT_TRIES):
        root = Path(tempfile.mkdtemp(prefix=prefix))
        if (lock := _try_lock(root)) is not None:
            return root, lock
    raise OSError(errno.EAGAIN, "Other processes removed each new folder", tempfile.gettempdir())


def _try_lock(folder: Path) -> int | None:
    """None if another process holds the lock of the folder or has removed it, or if it is not ours."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(opened).st_uid == os.geteuid():
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(opened).st_nlink:
                return opened
    except BlockingIOError:
        os.close(opened)
        return None
    os.close(opened)
    return None


def _remove_root(root: Path, lock: int) -> None:
    shutil.rmtree(root, ignore_errors=True)
    os.close(lock)
