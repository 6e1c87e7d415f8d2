"""Files of a run as tar: inputs into a stream, outputs out of one in which a hostile program may have written."""

import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

_BLOCK: Final = 512
_NAME, _SIZE, _CHECKSUM, _MAGIC = slice(0, 100), slice(124, 136), slice(148, 156), slice(257, 262)
_TYPE: Final = 156
EMPTY_TAR: Final = bytes(2 * _BLOCK)
"""A tar stream without members is its end alone."""


def pack_inputs(inputs: Mapping[str, bytes | Path]) -> Iterator[bytes]:
    """A tar stream in pieces of at most 64 KiB. Reads the files that are given as paths; raises OSError."""
    sink = _Sink()
    with tarfile.open(fileobj=cast("IO[bytes]", sink), mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path, content in inputs.items():
            member = tarfile.TarInfo(path)
            member.size = measure_input(content)
            with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
                archive.addfile(member, file)
            yield from sink.take()
    yield from sink.take()


def measure_input(content: bytes | Path) -> int:
    """Bytes of one input. Raises OSError."""
    return len(content) if isinstance(content, bytes) else content.stat().st_size


class _Sink:
    """Where `tarfile` writes; it hands over whole pieces."""

    _PIECE_BYTES: Final = 64 << 10

    def __init__(self) -> None:
        self._held = bytearray()

    def write(self, data: bytes) -> int:
        self._held += data
        return len(data)

    def take(self) -> Iterator[bytes]:
        held, self._held = bytes(self._held), bytearray()
        for start in range(0, len(held), self._PIECE_BYTES):
            yield held[start : start + self._PIECE_BYTES]


@dataclass(frozen=True, slots=True)
class UnpackedOutputs:
    """Contents by contract path, and what was wrong with the stream (empty: nothing)."""

    files: Mapping[str, bytes]
    problem: str = ""


def unpack_outputs(data: bytes | bytearray, outputs: tuple[str, ...]) -> UnpackedOutputs:
    """The files of an executor's tar: plain ustar, regular files only, each named by its place in the contract.

    Nothing in the stream chooses a path. What comes before the first wrong byte is kept.
    """
    files: dict[str, bytes] = {}
    view = memoryview(data)
    place = 0
    try:
        while header := bytes(view[place : place + _BLOCK]).rstrip(b"\0"):
            number, size = _parse_header(header.ljust(_BLOCK, b"\0"))
            start = place + _BLOCK
            if number >= len(outputs) or outputs[number] in files:
                raise ValueError(f"member {number} is not one of the contract, or is there twice")
            if start + size > len(data):
                raise ValueError(f"{outputs[number]} is cut off")
            files[outputs[number]] = bytes(view[start : start + size])
            place = start + -(-size // _BLOCK) * _BLOCK
    except ValueError as error:
        return UnpackedOutputs(files, str(error))
    return UnpackedOutputs(files)


def _parse_header(header: bytes) -> tuple[int, int]:
    """Number and size of a member. Raises ValueError."""
    if header[_MAGIC] != b"ustar" or header[_TYPE : _TYPE + 1] not in (b"0", b"\0"):
        raise ValueError("a member is not a regular file")
    plain = header[: _CHECKSUM.start] + b" " * 8 + header[_CHECKSUM.stop :]
    if _parse_number(header[_CHECKSUM], 8) != sum(plain):
        raise ValueError("a header's checksum is wrong")
    return _parse_number(header[_NAME], 10), _parse_number(header[_SIZE], 8)


def _parse_number(field: bytes, base: int) -> int:
    digits = field.strip(b"\0 ")
    if not digits.isdigit():
        raise ValueError("a header holds no number where one belongs")
    return int(digits, base)
