"""Objects as files under one folder, each at its key, written atomically."""

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

import structlog

from everturn.core.errors import Invalid, NotFound, Unavailable
from everturn.core.ids import ConversationId
from everturn.core.metrics import DISK_FULL
from everturn.files.model import object_key
from everturn.files.objects import (
    CHUNK_BYTES,
    MANIFESTS,
    MAX_OBJECTS,
    ObjectPage,
    StoredObject,
    check_bytes,
    check_genuine,
    check_key,
    check_limit,
    is_key,
)

_log = structlog.get_logger(__name__)

THREADS: Final = 16
"""Calls at once; more wait."""
Result = TypeVar("Result")


def open_files(url: str) -> "FileObjects":
    """`file:///folder`. Raises Invalid for other URLs, Unavailable when it can't be written."""
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    if parts.netloc or not path.is_absolute():
        raise Invalid(f"OBJECTS_URL is {url!r}; expected file:///folder.")
    objects = FileObjects(path)
    objects.prepare()
    return objects


class FileObjects:
    """Folders are 0700 and files 0600. Every read, also of a part, verifies the whole object."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._temporary = root / "tmp"
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="files")
        self._is_closed = False

    @property
    def kind(self) -> str:
        return "files"

    def prepare(self) -> None:
        """Create the folders, and remove the unfinished files of killed processes, whose locks are released."""
        with _failures():
            for folder in (self._root, self._temporary):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in self._temporary.iterdir():
                _try_remove_abandoned(left)

    def close(self) -> None:
        """End the threads; a call that still runs ends when the file system responds."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def save(self, key: str, data: bytes) -> None:
        await self._run(self._save, key, data)

    async def load(self, key: str, *, max_bytes: int) -> bytes:
        return await self._run(self._load, key, max_bytes)

    async def load_stream(self, key: str) -> AsyncGenerator[bytes]:
        size = await self._run(self._size, key)
        async with aclosing(self.load_range(key, start=0, end=size)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def load_range(self, key: str, *, start: int, end: int) -> AsyncGenerator[bytes]:
        file = await self._run(self._open_checked, key)
        try:
            file.seek(start)
            while start < end and (chunk := await self._run(_read, file, min(CHUNK_BYTES, end - start))):
                start += len(chunk)
                yield chunk
        finally:
            # A thread may still read for a cancelled caller; close() waits for it, and the event loop must not.
            if self._is_closed:
                threading.Thread(target=file.close, name="files-close", daemon=True).start()
            else:
                self._threads.submit(file.close)

    async def load_page(self, prefix: str = "", *, cursor: str | None = None, limit: int = MAX_OBJECTS) -> ObjectPage:
        check_limit(limit)
        return await self._run(self._load_page, prefix, cursor or "", limit)

    async def try_presign(self, key: str, *, content_type: str, disposition: str, lifetime_s: int) -> str | None:
        """None: files have no URL."""
        check_key(key)
        return None

    async def delete(self, keys: Sequence[str]) -> int:
        return await self._run(self._delete, keys)

    async def delete_conversation(self, conversation_id: ConversationId, *, keep: Collection[str] = ()) -> int:
        return await self._run(self._delete_conversation, conversation_id, frozenset(keep))

    async def check(self) -> None:
        await self._run(self._check)

    async def _run(self, call: Callable[..., Result], *args: object) -> Result:
        """In threads of its own: a store that hangs keeps them, and must not take those of all other work."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)

    def _save(self, key: str, data: bytes) -> None:
        path = self._path(key)
        check_bytes(key, data)
        with _failures(), self._written(data) as temporary:
            try:
                temporary.rename(path)
            except FileNotFoundError:  # the folder is new, or a concurrent delete removed it with its last object
                self._make_folder(path.parent)
                temporary.rename(path)
            _sync_folder(path.parent)

    @contextmanager
    def _written(self, data: bytes) -> Generator[Path]:
        """A temporary file with the data, synced to disk. Locked until the caller, which renames it, is done."""
        temporary = self._temporary / secrets.token_hex(16)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
            yield temporary
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)

    def _load(self, key: str, max_bytes: int) -> bytes:
        with self._open(key) as file, _failures():
            size = os.fstat(file.fileno()).st_size
            if size > max_bytes:
                raise Invalid(f"{key} has {size} bytes; at most {max_bytes} are read.")
            data = file.read()
        check_genuine(key, hashlib.sha256(data).hexdigest())
        return data

    def _open_checked(self, key: str) -> BufferedReader:
        file = self._open(key)
        try:
            with _failures():
                check_genuine(key, hashlib.file_digest(file, "sha256").hexdigest())
        except BaseException:
            file.close()
            raise
        return file

    def _size(self, key: str) -> int:
        with self._open(key) as file, _failures():
            return os.fstat(file.fileno()).st_size

    def _load_page(self, prefix: str, cursor: str, limit: int) -> ObjectPage:
        with _failures():
            found = tuple(islice(self._walk(prefix, cursor), limit + 1))
        page = found[:limit]
        return ObjectPage(page, page[-1].key if len(found) > limit else None)

    def _walk(self, prefix: str, cursor: str) -> Iterator[StoredObject]:
        """The objects after the cursor, by key. Names have one length, so the order of folders is the order of keys."""
        first, slash, _ = prefix.partition("/")
        # A folder may be missing, but not the store: every store has this one.
        self._temporary.stat()
        # After a slash the folder's name is complete: the others, of which there may be very many, need not be listed.
        for folder in (first,) if slash else sorted(os.listdir(self._root)):
            if folder < cursor.partition("/")[0] or not folder.startswith(first):
                continue
            manifests = (f"{MANIFESTS}/{name}" for name in _names(self._root / folder / MANIFESTS))
            for name in (*_names(self._root / folder), *manifests):
                key = f"{folder}/{name}"
                if key > cursor and key.startswith(prefix) and is_key(key) and (found := self._try_stat(key)):
                    yield found

    def _try_stat(self, key: str) -> StoredObject | None:
        """None when it was deleted meanwhile."""
        try:
            status = (self._root / key).stat()
        except FileNotFoundError:
            return None
        return StoredObject(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    def _open(self, key: str) -> BufferedReader:
        try:
            return self._path(key).open("rb")
        except FileNotFoundError as error:
            raise NotFound(key) from error
        except OSError as error:
            raise Unavailable(f"Objects: {error}") from error

    def _delete(self, keys: Sequence[str]) -> int:
        deleted = 0
        for path in [self._path(key) for key in keys]:
            with _failures():
                try:
                    path.unlink()
                except FileNotFoundError:
                    continue
            deleted += 1
            _try_remove_folder(path.parent)
            if path.parent.name == MANIFESTS:
                _try_remove_folder(path.parent.parent)
        return deleted

    def _delete_conversation(self, conversation_id: ConversationId, keep: frozenset[str]) -> int:
        folder = self._path(object_key(conversation_id, "0" * 64)).parent
        with _failures():
            paths = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
        keys = [str(path.relative_to(self._root)) for path in paths]
        return self._delete([key for key in keys if key not in keep])

    def _make_folder(self, folder: Path) -> None:
        for each in (folder.parent, folder) if folder.name == MANIFESTS else (folder,):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync_folder(each.parent)

    def _check(self) -> None:
        with _failures(), self._written(b"check") as temporary:
            temporary.unlink()

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._root / key


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read(file: BufferedReader, size: int) -> bytes:
    with _failures():
        return file.read(size)


def _sync_folder(folder: Path) -> None:
    """A renamed file or a new folder is durable only after the folder that names it is synced."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _try_remove_abandoned(temporary: Path) -> None:
    """Remove it unless its writer lives. A writer that was about to lock it fails, and its caller retries."""
    try:
        with temporary.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.unlink(missing_ok=True)
    except (BlockingIOError, FileNotFoundError):
        return


def _try_remove_folder(folder: Path) -> bool | None:
    """None when it still contains objects."""
    try:
        folder.rmdir()
    except OSError:
        return None
    return True


@contextmanager
def _failures() -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            DISK_FULL.labels("objects").inc()
            _log.error("The disk of the objects is full", error=str(error))
        raise Unavailable(f"Objects: {error}") from error
