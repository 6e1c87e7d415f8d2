"""The files of a knowledge space, from a folder of a bundle: what belongs to it, and reading one.

No link that leaves the folder is followed, and no name that could.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from everturn.core.errors import Invalid, Unavailable
from everturn.core.refs import check_path
from everturn.knowledge.collections import MAX_COLLECTION_DOCUMENTS
from everturn.knowledge.store import MAX_DOCUMENTS

MAX_DEPTH = 20
"""Folders within folders."""
_FORBIDDEN = "it can't be read: permission denied"
_ENTRIES_PER_FILE = 20
"""Times the files of a space: how many entries of folders are read."""
MAX_LISTED_SKIPPED = MAX_COLLECTION_DOCUMENTS
"""How many skipped files are named, which are all of a collection; all are counted."""


class SpaceRefused(Invalid):
    """A space can't be built: a sentence for author and operator."""


class FilesChanged(Unavailable):
    """The files changed while they were read; look at them again."""


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """Of one space. A text file may have `text_bytes`, one that is converted to text `converted_bytes`."""

    files: int = MAX_DOCUMENTS
    text_bytes: int = 1024 * 1024
    converted_bytes: int = 16 * 1024 * 1024
    total_bytes: int = 1024 * 1024 * 1024


CONVERTED: Mapping[str, str] = {
    ".pdf": "application/pdf",
    ".html": "text/html",
    ".htm": "text/html",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
}
"""Types of files that are converted to text, by the ending of their names."""


@dataclass(frozen=True, slots=True)
class TreeFile:
    """`path` is the path in a `ks:` ref, `origin` the path in the tree. `digest` changes with the content."""

    path: str
    origin: str
    size: int
    digest: str

    @property
    def converted_from(self) -> str:
        """The type from which the file has to be converted to text; empty for a text."""
        return CONVERTED.get(PurePosixPath(self.origin.lower()).suffix, "")


@dataclass(slots=True)
class Skipped:
    """Files that are not documents, with the reasons."""

    count: int = 0
    reasons: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, origin: str, reason: str) -> None:
        self.count += 1
        if len(self.reasons) < MAX_LISTED_SKIPPED:
            self.reasons[origin] = reason

    @property
    def listed(self) -> list[str]:
        """Lines for a log."""
        return [f"{ascii(origin)[1:-1][:200]}: {reason}" for origin, reason in self.reasons.items()]


@dataclass(frozen=True, slots=True)
class Listing:
    """`names` are the paths in the tree of all files below the roots, for checking links between them."""

    files: tuple[TreeFile, ...]
    names: frozenset[str]
    skipped: Skipped


class Tree(Protocol):
    """The files of one version of a space."""

    async def list_files(self) -> Listing:
        """Raises SpaceRefused if the tree has too many files or bytes, or lacks a root; Unavailable."""
        ...

    async def read(self, file: TreeFile) -> bytes:
        """Raises FilesChanged, Unavailable."""
        ...


class ListingBuilder:
    """Decides which files of a tree belong to a space. Hidden files and folders don't."""

    def __init__(self, name: str, roots: Mapping[str, str], limits: TreeLimits) -> None:
        self._space = name
        self._roots = roots
        self._limits = limits
        self._files: list[TreeFile] = []
        self._names: set[str] = set()
        self._seen_roots: set[str] = set()
        self._bytes = 0
        self._skipped = Skipped()

    def try_accept(self, origin: str, size: int) -> list[str]:
        """The paths under which a regular file belongs to the space; usually one, none if it doesn't."""
        paths = list(self._find_paths(origin))
        if not paths:
            return []
        try:
            check_path(origin)
            for path in paths:
                check_path(path)
        except Invalid:
            self._skipped.add(origin, "its name can't be used")
            return []
        self._note(origin)
        converted = PurePosixPath(origin.lower()).suffix in CONVERTED
        limit = self._limits.converted_bytes if converted else self._limits.text_bytes
        if size > limit:
            self._skipped.add(origin, f"it has more than {limit // 1024} KiB")
            return []
        self._bytes += size
        if self._bytes > self._limits.total_bytes:
            raise SpaceRefused(
                f"The files have more than {self._limits.total_bytes // 2**20} MiB together. Choose smaller roots."
            )
        return paths

    def skip(self, origin: str, reason: str) -> None:
        """Something other than a regular file."""
        if next(self._find_paths(origin), None) is not None:
            self._note(origin)
            self._skipped.add(origin, reason)

    def add(self, paths: Iterable[str], origin: str, size: int, digest: str) -> None:
        self._files += [TreeFile(path, origin, size, digest) for path in paths]

    def build(self) -> Listing:
        """Raises SpaceRefused if a root has no files."""
        for prefix, root in self._roots.items():
            if prefix not in self._seen_roots:
                where = f"The folder {root!a}" if root else "The repository"
                raise SpaceRefused(f"{where} does not exist or has no files that can be read.")
        files = tuple(sorted(self._files, key=lambda file: file.path))
        return Listing(files, frozenset(self._names), self._skipped)

    def _note(self, origin: str) -> None:
        self._names.add(origin)
        if len(self._names) > self._limits.files:
            raise SpaceRefused(f"There are more than {self._limits.files} files. Choose smaller roots.")

    def _find_paths(self, origin: str) -> Iterator[str]:
        for prefix, root in self._roots.items():
            if root and not origin.startswith(f"{root}/"):
                continue
            below = origin[len(root) + 1 :] if root else origin
            if any(part.startswith(".") for part in below.split("/")):
                continue
            self._seen_roots.add(prefix)
            yield "/".join(part for part in (self._space, prefix, below) if part)


@dataclass(frozen=True, slots=True)
class _Found:
    """A file of a folder: its path in the tree, and where it is below the folder once links are resolved; None for
    something that is no file of the folder."""

    origin: str
    real: str | None
    reason: str = ""


class FolderTree:
    """Files in a folder of this machine. A link is followed if it leads to another place in the folder, as in volumes
    of Kubernetes. A file is read again only if its size, times or number have changed."""

    def __init__(self, folder: Path, name: str, roots: Mapping[str, str], limits: TreeLimits) -> None:
        self._folder = folder
        self._name = name
        self._roots = roots
        self._limits = limits
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}
        self._real: dict[str, str] = {}

    async def list_files(self) -> Listing:
        try:
            return await asyncio.to_thread(self._list)
        except OSError as error:
            raise FilesChanged(f"The folder of the knowledge space can't be read: {error.strerror}.") from error

    async def read(self, file: TreeFile) -> bytes:
        try:
            data = await asyncio.to_thread(self._read, self._real[file.origin], file.size)
        except OSError as error:
            raise FilesChanged(f"The file {file.origin!a} can't be read: {error.strerror}.") from error
        if len(data) != file.size or await asyncio.to_thread(_hash, data) != file.digest:
            raise FilesChanged(f"The file {file.origin!a} has changed.")
        return data

    def _list(self) -> Listing:
        listing = ListingBuilder(self._name, self._roots, self._limits)
        known = dict[str, tuple[tuple[int, ...], str]]()
        real = dict[str, str]()
        folder = self._folder.resolve()
        for found in self._walk(folder):
            if found.real is None:
                listing.skip(found.origin, found.reason)
                continue
            try:
                details = os.stat(folder / found.real, follow_symlinks=False)
                if not stat.S_ISREG(details.st_mode):
                    listing.skip(found.origin, "it is not a file")
                    continue
                paths = listing.try_accept(found.origin, details.st_size)
                if not paths:
                    continue
                mark = details.st_size, details.st_mtime_ns, details.st_ctime_ns, details.st_ino
                before = self._known.get(found.origin)
                digest = before[1] if before and before[0] == mark else _hash(self._read(found.real, details.st_size))
            except PermissionError:
                listing.skip(found.origin, _FORBIDDEN)
                continue
            known[found.origin] = mark, digest
            real[found.origin] = found.real
            listing.add(paths, found.origin, details.st_size, digest)
        self._known, self._real = known, real
        return listing.build()

    def _walk(self, folder: Path) -> Iterator[_Found]:
        """What is below the roots, each folder once. Ends soon where there is very much."""
        left = _ENTRIES_PER_FILE * self._limits.files
        waiting = [_resolve(folder, root) for root in sorted(set(self._roots.values()))]
        seen = set[str]()
        while waiting:
            above = waiting.pop()
            if above.real is None or above.real in seen or above.origin.count("/") > MAX_DEPTH:
                continue
            seen.add(above.real)
            try:
                descriptor = _open_inside(folder, above.real, os.O_DIRECTORY)
            except NotADirectoryError:
                continue
            except PermissionError:
                yield _Found(above.origin, None, _FORBIDDEN)
                continue
            try:
                with os.scandir(descriptor) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0:
                            raise SpaceRefused(f"There are more than {_ENTRIES_PER_FILE * self._limits.files} files.")
                        if entry.name.startswith("."):
                            continue
                        origin = f"{above.origin}/{entry.name}".lstrip("/")
                        if entry.is_symlink():
                            found = _resolve(folder, origin, f"{above.real}/{entry.name}")
                        else:
                            found = _Found(origin, f"{above.real}/{entry.name}".lstrip("/"))
                        if found.real is not None and os.path.isdir(folder / found.real):
                            waiting.append(found)
                        else:
                            yield found
            finally:
                os.close(descriptor)

    def _read(self, real: str, size: int) -> bytes:
        descriptor = _open_inside(self._folder.resolve(), real, os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as opened:
            return opened.read(size + 1)


def _resolve(folder: Path, origin: str, place: str | None = None) -> _Found:
    """Where a link at `place` leads, or that it leads out of the folder or nowhere."""
    target = Path(os.path.realpath(folder / (origin if place is None else place.lstrip("/"))))
    if not target.is_relative_to(folder):
        return _Found(origin, None, "it is a link that leads out of the folder")
    if not target.exists():
        return _Found(origin, None, "it is a broken link")
    real = target.relative_to(folder).as_posix()
    return _Found(origin, "" if real == "." else real)


def _open_inside(folder: Path, path: str, flags: int) -> int:
    """Open a path below a folder without following a link in it. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    parts = path.split("/") if path else []
    for place, part in enumerate(parts, start=1):
        kind = flags if place == len(parts) else os.O_DIRECTORY
        try:
            below = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
