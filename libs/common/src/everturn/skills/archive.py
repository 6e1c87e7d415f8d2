"""Skills as ZIP archives: uploads of people, whose every byte may be hostile, and the archives that are stored.

Archives are only read into memory, entry by entry and within limits; nothing is written to a disk.
"""

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Final

from everturn.core.errors import Invalid
from everturn.execution.messages import check_relative_path
from everturn.skills.model import INSTRUCTIONS
from everturn.skills.reader import MAX_FILE_BYTES, MAX_SKILL_FILES

MAX_SKILL_BYTES: Final = 8 * 1024 * 1024
"""Of the files of one uploaded skill together."""
MAX_ARCHIVE_BYTES: Final = MAX_SKILL_BYTES + 256 * 1024
"""As much as such files need if they can't be compressed."""
MAX_ENTRIES: Final = 4 * MAX_SKILL_FILES
"""Files and folders of an archive, with those that are skipped."""
MAX_DIRECTORY_BYTES: Final = 512 * 1024
"""Of the list of entries at the end of an archive. Python reads it whole: 8 MiB of it would take 1.3 s and 100 MB."""
SKIPPED: Final = frozenset({"__MACOSX", "__pycache__"})
"""Folders that are no part of a skill, like everything whose name begins with a dot."""
_END_RECORD: Final = b"PK\x05\x06"
_END_RECORD_BYTES: Final = 22
_ZIP64_LOCATOR: Final = b"PK\x06\x07"
_ZIP64_LOCATOR_BYTES: Final = 20
_SHOWN_NAME_CHARS: Final = 240
_UTF8_NAME: Final = 0x800
_ENCRYPTED: Final = 0x1
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_BROKEN: Final = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, OSError, OverflowError, RuntimeError,
    ValueError,
)  # fmt: skip


def unpack_upload(data: bytes) -> dict[str, bytes]:
    """The files of an uploaded archive by path in the skill's folder, which the archive may contain or consist of.

    Takes up to 0.2 s. Raises Invalid with the file and the reason.
    """
    if len(data) > MAX_ARCHIVE_BYTES:
        raise Invalid(f"The archive has {len(data)} bytes; at most {MAX_ARCHIVE_BYTES} are allowed.")
    _check_directory(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _strip_folder(_read_entries(archive))
    except _BROKEN as error:
        reason = " ".join(str(error).split())[:200]
        raise Invalid(f"The archive is damaged: {reason or type(error).__name__}.") from error


def pack_skill(files: Mapping[str, bytes]) -> bytes:
    """The archive that is scanned and stored. The same files give the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _check_directory(data: bytes) -> None:
    """Raise Invalid if the list of entries is too long, or not where Python looks for it."""
    end = data.rfind(_END_RECORD)
    if not data.startswith(b"PK") or end < 0 or len(data) - end < _END_RECORD_BYTES:
        raise Invalid("The upload is not a ZIP archive.")
    if data[max(0, end - _ZIP64_LOCATOR_BYTES) :].startswith(_ZIP64_LOCATOR):
        raise Invalid("The archive is in the ZIP64 format, which is for larger ones.")
    if int.from_bytes(data[end + 12 : end + 16], "little") > MAX_DIRECTORY_BYTES:
        raise Invalid(f"The archive's list of files has more than {MAX_DIRECTORY_BYTES} bytes.")


def _read_entries(archive: zipfile.ZipFile) -> dict[str, bytes]:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise Invalid(f"The archive has {len(entries)} files and folders; at most {MAX_ENTRIES} are allowed.")
    files: dict[str, bytes] = {}
    left = MAX_SKILL_BYTES
    for entry in entries:
        path = _check_entry(entry)
        parts = path.rstrip("/").split("/")
        if path.endswith("/") or any(part.startswith(".") or part in SKIPPED for part in parts):
            continue
        if path in files:
            raise Invalid(f"{path!a} is in the archive twice.")
        if entry.file_size > MAX_FILE_BYTES:
            raise Invalid(f"{path!a} has {entry.file_size} bytes; a file of a skill can have at most {MAX_FILE_BYTES}.")
        # No more than the size that the entry declares: an entry that unpacks to more is damaged.
        with archive.open(entry) as file:
            files[path] = file.read(min(MAX_FILE_BYTES, left) + 1)
        left -= len(files[path])
        if left < 0:
            raise Invalid(f"The files have more than {MAX_SKILL_BYTES} bytes together, with {path!a}.")
    for path in files:
        parents = path.split("/")[:-1]
        if any("/".join(parents[:depth]) in files for depth in range(1, len(parents) + 1)):
            raise Invalid(f"{path!a} lies in a file of the archive.")
    return files


def _check_entry(entry: zipfile.ZipInfo) -> str:
    """Its name, which ends with a slash if it is a folder. Raises Invalid unless it is a plain file or folder."""
    # Python cuts names at NUL characters, so the original one is checked.
    name = entry.orig_filename
    shown = ascii(name[:_SHOWN_NAME_CHARS])
    if not name.isascii() and not entry.flag_bits & _UTF8_NAME:
        raise Invalid(f"{shown}: the name is not marked as UTF-8. Use ASCII, or create the archive with another tool.")
    try:
        check_relative_path(name.removesuffix("/"))
    except ValueError as error:
        raise Invalid(f"{shown}: {error}.") from error
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise Invalid(f"{shown} is a symbolic link. Put the file itself into the archive.")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise Invalid(f"{shown} is not a file.")
    if entry.flag_bits & _ENCRYPTED:
        raise Invalid(f"{shown} is encrypted.")
    if entry.compress_type not in _METHODS:
        raise Invalid(f"{shown} is compressed with a method other than deflate.")
    return name


def _strip_folder(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files by path in the folder around all of them, if there is one."""
    if INSTRUCTIONS in files:
        return files
    folder = next(iter(files), "").partition("/")[0]
    if f"{folder}/{INSTRUCTIONS}" not in files or any(not path.startswith(f"{folder}/") for path in files):
        raise Invalid(f"There is no {INSTRUCTIONS} in the archive, nor in a folder that contains all of its files.")
    return {path.removeprefix(f"{folder}/"): content for path, content in files.items()}
