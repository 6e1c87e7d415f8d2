"""One version of a bundle: its manifest and its files, read from a folder or from the registry."""

import hashlib
import io
import os
import re
import stat
import zipfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from chat_proc.bundles.manifest import (
    INSTRUCTIONS,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    BadBundle,
    BundleProps,
    Manifest,
    read_manifest,
)
from chat_proc.bundles.widgets import find_widget_files, list_widgets
from everturn.bundles.registry import BundleListing, OperationListing, StoredBundle, WidgetListing

MAX_FILES: Final = 2_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""Of all files together. Documents of knowledge spaces don't count, because they are indexed where they are."""
MAX_DEPTH: Final = 12
"""Folders within folders."""
MAX_PATH_CHARS: Final = 400
MAX_ENTRIES: Final = 4 * MAX_FILES
"""Files and folders that are looked at, with those that are skipped."""
SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv"})
"""Never part of a version, like everything whose name begins with a dot."""
NO_CONTENT: Final = frozenset({"knowledge", "tests"})
"""Folders of a bundle that its versions don't contain."""
_ID: Final = re.compile(rb"""^[ \t]*+id[ \t]*+=[ \t]*+["']([A-Za-z0-9][A-Za-z0-9._@-]{0,127})["']""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Bundle:
    """`files` are the contents by relative path, with slashes; without the manifest and the instructions. Raises
    BadBundle for widgets that can't be served."""

    manifest: Manifest
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    digest: str = field(init=False)
    """Of the manifest and all files, as 64 hexadecimal digits."""
    widgets: tuple[WidgetListing, ...] = field(init=False)

    def __post_init__(self) -> None:
        total = hashlib.sha256(self.manifest.write().encode())
        for path, content in sorted(self.files.items()):
            total.update(f"\0{path}\0{hashlib.sha256(content).hexdigest()}".encode())
        object.__setattr__(self, "digest", total.hexdigest())
        object.__setattr__(self, "widgets", list_widgets(self.files))

    @property
    def id(self) -> str:
        return self.manifest.id

    def override(self, props: BundleProps | None) -> "Bundle":
        """The bundle with the properties that an operator has set."""
        return self if props is None else Bundle(self.manifest.override(props), self.files)

    def list(
        self,
        *,
        is_default: bool = False,
        error: str = "",
        problems: Sequence[str] = (),
        operations: Sequence[OperationListing] = (),
    ) -> BundleListing:
        """What people see of it; `error` says why newer content is refused, `problems` what does not work in this."""
        about = self.manifest
        return BundleListing(
            id=self.id,
            digest=self.digest,
            title=about.shown_title,
            description=about.description,
            icon=about.icon,
            starters=about.starters,
            roles=tuple(sorted(about.roles)),
            is_default=is_default,
            error=error,
            problems=tuple(problems),
            operations=tuple(operations),
            widgets=self.widgets,
        )

    def pack(self) -> StoredBundle:
        """As the registry stores it. Takes up to a second for the largest."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in sorted(self.files.items()):
                archive.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)
        widgets = find_widget_files(self.files)
        return StoredBundle(self.id, self.digest, self.manifest.write(), packed.getvalue(), widgets)


def unpack(stored: StoredBundle) -> Bundle:
    """The bundle that `pack` wrote. Raises BadBundle if another version of this program wrote what this one can't
    read."""
    try:
        manifest = Manifest.model_validate_json(stored.manifest)
    except ValueError as error:
        raise BadBundle(f"The stored version {stored.digest[:12]} of {stored.id} can't be read here.") from error
    with zipfile.ZipFile(io.BytesIO(stored.files)) as archive:
        return Bundle(manifest, {entry.filename: archive.read(entry) for entry in archive.infolist()})


def sign_folder(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Changes whenever a file that `read_folder` reads is written, added or removed: the path, size, inode and time of
    change of each. Raises BadBundle."""
    return tuple((path, about.st_size, about.st_ino, about.st_mtime_ns) for path, about in _walk(folder))


def read_folder(folder: Path) -> Bundle:
    """Read `bundle.toml`, `instructions.md` and all other files. Raises BadBundle."""
    files: dict[str, bytes] = {}
    left = MAX_BYTES
    for path, _ in _walk(folder):
        files[path] = _read(folder, path, left)
        left -= len(files[path])
    if (manifest := files.pop(MANIFEST, None)) is None:
        raise BadBundle(f"The folder {folder.name} has no {MANIFEST}.")
    return Bundle(read_manifest(manifest, instructions=files.pop(INSTRUCTIONS, None)), files)


def guess_id(folder: Path) -> str:
    """The id in a manifest that can't be read otherwise; empty if there is none."""
    try:
        manifest = _read(folder, MANIFEST, MAX_MANIFEST_BYTES)
    except BadBundle:
        return ""
    found = _ID.search(manifest.partition(b"\n[")[0])
    return found[1].decode() if found else ""


def _walk(folder: Path) -> list[tuple[str, os.stat_result]]:
    """The relative paths of the files, in order. A link is followed if it leads to a file of the folder, as in volumes
    of Kubernetes."""
    root = folder.resolve()
    found: list[tuple[str, os.stat_result]] = []
    waiting: list[tuple[Path, int]] = [(root, 0)]
    looked_at = 0
    while waiting:
        parent, depth = waiting.pop()
        for entry in _scan(parent):
            looked_at += 1
            if looked_at > MAX_ENTRIES:
                raise BadBundle(f"The folder {folder.name} has more than {MAX_ENTRIES} files and folders.")
            if _is_skipped(entry.name, depth):
                continue
            path = Path(entry.path).relative_to(root).as_posix()
            _check_path(path)
            if not entry.is_dir(follow_symlinks=False):
                found.append((path, _check_file(root, path, entry)))
            elif depth >= MAX_DEPTH:
                raise BadBundle(f"{path}: Folders may be nested at most {MAX_DEPTH} deep.")
            else:
                waiting.append((Path(entry.path), depth + 1))
    if len(found) > MAX_FILES:
        raise BadBundle(f"The folder {folder.name} has {len(found)} files; {MAX_FILES} are allowed.")
    return sorted(found, key=lambda file: file[0])


def _is_skipped(name: str, depth: int) -> bool:
    return name.startswith(".") or name in SKIPPED or (not depth and name in NO_CONTENT)


def find_skipped(path: str) -> str | None:
    """The part of a relative path because of which `read_folder` skips it; None if it does not."""
    parts = () if path.startswith("/") else PurePosixPath(path).parts
    return next((part for depth, part in enumerate(parts) if _is_skipped(part, depth) and part != ".."), None)


def _scan(folder: Path) -> Generator["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as found:
            yield from found
    except OSError as error:
        raise BadBundle(f"{folder.name}: {error.strerror}.") from error


def _check_path(path: str) -> None:
    if len(path) > MAX_PATH_CHARS:
        raise BadBundle(f"{path[:80]!a}...: A path may have at most {MAX_PATH_CHARS} characters.")
    if not path.isprintable() or "\\" in path:
        raise BadBundle(f"{path!a} is not a usable name for a file.")


def _check_file(root: Path, path: str, entry: "os.DirEntry[str]") -> os.stat_result:
    try:
        if entry.is_symlink() and not _resolve(Path(entry.path)).is_relative_to(root):
            raise BadBundle(f"{path} is a link that leads out of the bundle. Copy the file into it.")
        about = entry.stat()
    except OSError as error:
        raise BadBundle(f"{path}: {error.strerror}.") from error
    if not stat.S_ISREG(about.st_mode):
        raise BadBundle(f"{path} is not a file.")
    return about


def _resolve(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise BadBundle(f"{path.name} is a broken link.") from error


def _read(folder: Path, path: str, left: int) -> bytes:
    try:
        opened = os.open(_resolve(folder.resolve() / path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(opened, "rb") as file:
            content = file.read(left + 1)
    except OSError as error:
        raise BadBundle(f"{path}: {error.strerror}.") from error
    if len(content) > left:
        raise BadBundle(f"The files of {folder.name} have more than {MAX_BYTES // 2**20} MiB in total.")
    return content
