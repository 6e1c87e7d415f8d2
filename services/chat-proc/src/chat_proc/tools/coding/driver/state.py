"""What is kept of a run: the agent's home, with its session, and how the project differs from what it was given."""

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_FILES: Final = 500
MAX_FILE_BYTES: Final = 16 << 20
MAX_CHANGED_BYTES: Final = 48 << 20
MAX_HOME_BYTES: Final = 32 << 20
MAX_NAMED: Final = 20
"""Files that are not kept, and that the result names."""
_NOT_OF_PROJECT: Final = frozenset({".git", "node_modules", "__pycache__", ".venv", ".pytest_cache", ".ruff_cache"})
_NOT_OF_HOME: Final = frozenset({"node_modules", ".cache", "cache", "logs", "log", "statsig", "tmp", ".tmp"})
_CHUNK: Final = 1 << 20


class State:
    """`pack` describes the folders as they are then. A file that can't be kept is left out, and named."""

    def __init__(self, project: Path, home: Path) -> None:
        self._project = project
        self._home = home
        self._given: dict[str, str] = {}
        self._packed = ""
        self.session = ""

    def unpack(self, project: Path, state: Path) -> None:
        """Create both folders: the project as it was given, and what an earlier run of this task left. Both archives
        come from the worker."""
        self._project.mkdir()
        self._home.mkdir()
        with tarfile.open(project) as archive:
            archive.extractall(self._project, filter="data")
        self._given = {path: _hash(self._project / path) for path in _walk(self._project, _NOT_OF_PROJECT)}
        if not state.exists():
            return
        with tarfile.open(state) as archive:
            about = json.loads(_read_member(archive, "state.json"))
            self.session = about["session"]
            for path in about["deleted"]:
                (self._project / path).unlink(missing_ok=True)
            for folder, target in (("changed/", self._project), ("home/", self._home)):
                for member in archive.getmembers():
                    if member.name.startswith(folder):
                        member.name = member.name.removeprefix(folder)
                        archive.extract(member, target, filter="data")

    def pack(self) -> bytes | None:
        """The archive, or None if it would be that of last time."""
        present = list(_walk(self._project, _NOT_OF_PROJECT))
        changed, left_out, size = list[str](), list[str](), 0
        for path in present:
            place = self._project / path
            if self._given.get(path) == (digest := _hash(place)) or not digest:
                continue
            amount = place.stat().st_size
            if amount > MAX_FILE_BYTES or size + amount > MAX_CHANGED_BYTES or len(changed) >= MAX_FILES:
                left_out.append(path)
                continue
            size += amount
            changed.append(path)
        deleted = sorted(set(self._given).difference(present))
        home = self._choose_home()
        about = {
            "session": self.session,
            "deleted": deleted[:MAX_FILES],
            "left_out": left_out[:MAX_NAMED],
            "left_out_count": len(left_out) + max(0, len(deleted) - MAX_FILES),
        }
        data = self._build(about, changed, home)
        digest = hashlib.sha256(data).hexdigest()
        if digest == self._packed:
            return None
        self._packed = digest
        return data

    def forget_packed(self) -> None:
        """The last archive was not stored, so the next one is packed in any case."""
        self._packed = ""

    def _choose_home(self) -> list[str]:
        """The newest files first, as many as there is room for: a session is newer than what came with it."""
        chosen, size = list[str](), 0
        found = sorted(_walk(self._home, _NOT_OF_HOME), key=lambda path: -_find_time(self._home / path))
        for path in found:
            amount = _find_size(self._home / path)
            if size + amount <= MAX_HOME_BYTES:
                size += amount
                chosen.append(path)
        return sorted(chosen)

    def _build(self, about: dict[str, object], changed: list[str], home: list[str]) -> bytes:
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, "state.json", json.dumps(about).encode())
            for folder, root, paths in (("changed", self._project, changed), ("home", self._home, home)):
                for path in paths:
                    if (body := _try_read(root / path)) is not None:
                        _add(archive, f"{folder}/{path}", body)
        return sink.getvalue()


def _walk(root: Path, skipped: frozenset[str]) -> Iterator[str]:
    """The regular files below a folder, by path, in order."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in skipped)
        for name in sorted(files):
            place = Path(folder, name)
            if _is_regular(place):
                yield str(place.relative_to(root))


def _is_regular(place: Path) -> bool:
    try:
        return stat.S_ISREG(place.lstat().st_mode)
    except OSError:
        return False


def _find_time(place: Path) -> float:
    try:
        return place.stat().st_mtime
    except OSError:
        return 0.0


def _find_size(place: Path) -> int:
    try:
        return place.stat().st_size
    except OSError:
        return 0


def _hash(place: Path) -> str:
    """Empty if it can't be read: the agent may have removed it meanwhile."""
    digest = hashlib.sha256()
    try:
        with place.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError:
        return ""
    return digest.hexdigest()


def _try_read(place: Path) -> bytes | None:
    try:
        return place.read_bytes()
    except OSError:
        return None


def _add(archive: tarfile.TarFile, name: str, body: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(body)
    archive.addfile(member, io.BytesIO(body))


def _read_member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    return file.read() if file is not None else b""
