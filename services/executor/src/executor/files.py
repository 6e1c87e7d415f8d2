"""Files of a run: inputs from a tar stream into the work folder, declared outputs from the output folder."""

import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final, cast

from everturn.execution.messages import InputsEnd, RunLimits, check_relative_path
from everturn.execution.records import parse_message
from executor.channel import Channel

_MAX_UNDECLARED: Final = 50
_MAX_SCANNED: Final = 5000
_MAX_NAME_CHARS: Final = 200
_MAX_DEPTH: Final = 32
_NOT_SEARCHED: Final = "/... (this folder was not searched)"


class RawReader:
    """The raw frames of a channel up to InputsEnd, as a file from which `tarfile` reads a stream."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._pending = bytearray()
        self._ended = False

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes, fewer only at the end."""
        while len(self._pending) < size and not self._ended:
            frame = self._channel.receive_frame()
            if isinstance(frame, bytes):
                self._pending += frame
            else:
                parse_message(frame, InputsEnd)
                self._ended = True
        data = bytes(self._pending[:size])
        del self._pending[:size]
        return data

    def is_empty(self) -> bool:
        """Whether no data precede InputsEnd."""
        first = self.read(1)
        self._pending[:0] = first
        return not first

    def drain(self) -> None:
        """Read to the end: a tar stream is padded after its last member."""
        while self.read(1 << 16):
            pass


def unpack_inputs(reader: RawReader, root: str) -> None:
    """Write the regular files of the tar stream under `root`; an empty stream has no files.

    Raises ValueError for any other member.
    """
    if reader.is_empty():
        return
    with tarfile.open(fileobj=cast("IO[bytes]", reader), mode="r|") as archive:
        for member in archive:
            body = archive.extractfile(member) if member.isreg() else None
            if body is None:
                raise ValueError(f"input {member.name!r} is not a regular file")
            check_relative_path(member.name)
            target = os.path.join(root, member.name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "xb") as file:
                while chunk := body.read(1 << 18):
                    file.write(chunk)
    reader.drain()


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """The files that leave the sandbox: `files` are pairs of index in the contract and path, `refused` of path and
    reason."""

    files: tuple[tuple[int, str], ...]
    refused: tuple[tuple[str, str], ...]
    undeclared: tuple[str, ...]


def load_output_plan(root: str, outputs: tuple[str, ...], limits: RunLimits) -> OutputPlan:
    """Inspect the output folder once all of the program's processes are gone."""
    files: list[tuple[int, str]] = []
    refused: list[tuple[str, str]] = []
    left = limits.output_bytes
    for number, path in enumerate(outputs):
        size, reason = _inspect(root, path)
        if not reason and size > left:
            reason = "too_large"
        if not reason and len(files) >= limits.output_files:
            reason = "too_many_files"
        if reason:
            refused.append((path, reason))
            continue
        files.append((number, path))
        left -= size
    return OutputPlan(tuple(files), tuple(refused), tuple(_find_undeclared(root, frozenset(outputs))))


def _inspect(root: str, path: str) -> tuple[int, str]:
    """Size and reason for refusal: missing, symlink, not_regular, not_readable, empty; no reason means that it can
    leave."""
    parts = path.split("/")
    place = root
    for number, part in enumerate(parts, start=1):
        place = os.path.join(place, part)
        try:
            found = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return 0, "missing"
        except PermissionError:
            return 0, "not_readable"
        if stat.S_ISLNK(found.st_mode):
            return 0, "symlink"
        if number == len(parts):
            if not stat.S_ISREG(found.st_mode):
                return 0, "not_regular"
            if not os.access(place, os.R_OK, effective_ids=True):
                return 0, "not_readable"
            return found.st_size, "" if found.st_size else "empty"
    return 0, "missing"


def _find_undeclared(root: str, outputs: frozenset[str]) -> Iterator[str]:
    """Names that the contract does not have, at most `_MAX_UNDECLARED`; folders under `_MAX_DEPTH` are only named.

    The program made these folders. However deep they are and whatever they contain, the runner must survive the search.
    """
    scanned = found = 0
    folders = [("", 0)]
    while folders:
        folder, depth = folders.pop()
        listed = _try_list_folder(os.path.join(root, folder)) if depth <= _MAX_DEPTH else None
        if listed is None:
            found += 1
            yield _show_name(folder) + _NOT_SEARCHED
            continue
        deeper: list[tuple[str, int]] = []
        for name, is_folder in listed:
            scanned += 1
            if scanned > _MAX_SCANNED or found >= _MAX_UNDECLARED:
                return
            path = os.path.join(folder, name)
            if is_folder:
                deeper.append((path, depth + 1))
            elif path not in outputs:
                found += 1
                yield _show_name(path)
        folders += reversed(deeper)


def _try_list_folder(folder: str) -> list[tuple[str, bool]] | None:
    """Sorted names, each with whether it is a folder; None if it can't be read or its path is too long."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError:
        return None


def _show_name(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()[:_MAX_NAME_CHARS]


def send_outputs(root: str, plan: OutputPlan, target: Channel) -> None:
    """Write the plan's files to `target` as a ustar stream whose names are the files' indexes in the contract.

    So the reader neither has to trust a name nor to parse more than the simplest header.
    """
    with tarfile.open(fileobj=cast("IO[bytes]", target), mode="w|", format=tarfile.USTAR_FORMAT) as archive:
        for number, path in plan.files:
            descriptor = os.open(os.path.join(root, path), os.O_RDONLY | os.O_NOFOLLOW)
            with open(descriptor, "rb") as file:
                member = tarfile.TarInfo(str(number))
                member.size = os.fstat(descriptor).st_size
                archive.addfile(member, file)
