"""Objects as files under one folder, each at its key, written whole or not at all."""

import asyncio
import hashlib
import os
import re
import secrets
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from everturn.errors import Invalid, NotFound, Unavailable
from everturn.model.artifacts import object_key
from everturn.model.ids import ConversationId, is_id

CHUNK_BYTES = 256 * 1024
STALE_TEMPORARY_S = 3_600
MANIFESTS = "manifests"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,6}")


class AlteredObject(Unavailable):
    """A stored object is not what was stored."""


class FileObjects:
    """Folders are 0700 and files 0600. A read checks the whole object against the hash in its key where it has one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._temporary = root / "tmp"

    async def save(self, key: str, data: bytes) -> None:
        await asyncio.to_thread(self._save, key, data)

    async def load(self, key: str, *, max_bytes: int) -> bytes:
        return await asyncio.to_thread(self._load, key, max_bytes)

    async def load_range(self, key: str, *, start: int, end: int) -> AsyncGenerator[bytes]:
        file = await asyncio.to_thread(self._open_checked, key)
        try:
            file.seek(start)
            while start < end and (chunk := await asyncio.to_thread(_read, file, min(CHUNK_BYTES, end - start))):
                start += len(chunk)
                yield chunk
        finally:
            file.close()

    async def delete(self, keys: Sequence[str]) -> int:
        return await asyncio.to_thread(self._delete, keys)

    async def delete_conversation(self, conversation_id: ConversationId) -> int:
        return await asyncio.to_thread(self._delete_conversation, conversation_id)

    async def check(self) -> None:
        await asyncio.to_thread(self._check)

    def prepare(self) -> None:
        """Make the folders, and remove what a killed process left half written an hour ago or earlier."""
        with _failures():
            for folder in (self._root, self._temporary):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in self._temporary.iterdir():
                if left.stat().st_mtime < time.time() - STALE_TEMPORARY_S:
                    left.unlink(missing_ok=True)

    def _save(self, key: str, data: bytes) -> None:
        path = self._path(key)
        if not _is_genuine(path, hashlib.sha256(data).hexdigest()):
            raise Invalid(f"The bytes are not those that {key} names.")
        with _failures(), self._written(data) as temporary:
            self._make_folder(path.parent)
            try:
                temporary.rename(path)
            except FileNotFoundError:  # a delete of the folder's last object came between
                self._make_folder(path.parent)
                temporary.rename(path)
            _sync_folder(path.parent)

    @contextmanager
    def _written(self, data: bytes) -> Generator[Path]:
        """A temporary file that holds the data on the disk; removed unless it was renamed."""
        temporary = self._temporary / secrets.token_hex(16)
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    def _load(self, key: str, max_bytes: int) -> bytes:
        with self._open(key) as file, _failures():
            size = os.fstat(file.fileno()).st_size
            if size > max_bytes:
                raise Invalid(f"{key} has {size} bytes; at most {max_bytes} are read.")
            data = file.read()
        if not _is_genuine(self._path(key), hashlib.sha256(data).hexdigest()):
            raise AlteredObject(key)
        return data

    def _open_checked(self, key: str) -> BufferedReader:
        file = self._open(key)
        with _failures():
            if _is_genuine(self._path(key), hashlib.file_digest(file, "sha256").hexdigest()):
                return file
        file.close()
        raise AlteredObject(key)

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

    def _delete_conversation(self, conversation_id: ConversationId) -> int:
        folder = self._path(object_key(conversation_id, "0" * 64)).parent
        with _failures():
            paths = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
        return self._delete([str(path.relative_to(self._root)) for path in paths])

    def _make_folder(self, folder: Path) -> None:
        for each in (folder.parent, folder) if folder.name == MANIFESTS else (folder,):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _check(self) -> None:
        with _failures(), self._written(b"check"):
            return

    def _path(self, key: str) -> Path:
        conversation, _, name = key.partition("/")
        if not is_id(conversation, "conv") or not (_DIGEST.fullmatch(name) or _is_manifest(name)):
            raise Invalid(f"{key!r} is no object key.")
        return self._root / conversation / name


def _is_manifest(name: str) -> bool:
    folder, _, file = name.partition("/")
    turn_id, _, number = file.rpartition(".")
    return folder == MANIFESTS and is_id(turn_id, "turn") and _NUMBER.fullmatch(number) is not None


def _is_genuine(path: Path, sha256: str) -> bool:
    """Manifests are named by their round: what they hold may change."""
    return path.parent.name == MANIFESTS or path.name == sha256


def _read(file: BufferedReader, size: int) -> bytes:
    with _failures():
        return file.read(size)


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk only when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _try_remove_folder(folder: Path) -> bool | None:
    """None when it still holds objects."""
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
        raise Unavailable(f"Objects: {error}") from error
