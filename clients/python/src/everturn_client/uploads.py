"""Local files that are uploaded or downloaded."""

import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from everturn_client.errors import TooMuch, check_utf8

MAX_FILES = 20
MAX_UPLOAD_BYTES = 64 * 1024 * 1024
"""How much is held in memory for one message; servers usually accept 25 MB."""
_FORBIDDEN = frozenset('/\\:*?"<>|')
MAX_NAME_CHARS = 120


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to send."""

    filename: str
    mime: str
    data: bytes


def load_uploads(paths: Sequence[Path]) -> tuple[Upload, ...]:
    """Read files.

    Raises OSError, BadInput for a name that is not UTF-8, and TooMuch above 20 files or 64 MiB in total.
    """
    if len(paths) > MAX_FILES:
        raise TooMuch(f"A message can have at most {MAX_FILES} files.")
    uploads: list[Upload] = []
    left = MAX_UPLOAD_BYTES
    for path in paths:
        check_utf8(path.name, "The name of the file", "Rename the file.")
        with path.open("rb") as file:
            data = file.read(left + 1)
        left -= len(data)
        if left < 0:
            raise TooMuch(f"The files are larger than {MAX_UPLOAD_BYTES // 2**20} MiB in total.")
        mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        uploads.append(Upload(path.name, mime, data))
    return tuple(uploads)


def build_free_path(folder: Path, filename: str) -> Path:
    """A path in `folder` that does not exist, named like the file but never outside the folder."""
    name = "".join("_" if char in _FORBIDDEN or not char.isprintable() else char for char in filename)
    name = name.strip(" .")[-MAX_NAME_CHARS:] or "file"
    wanted = folder / name
    free, number = wanted, 1
    while free.exists():
        free, number = wanted.with_stem(f"{wanted.stem} ({number})"), number + 1
    return free
