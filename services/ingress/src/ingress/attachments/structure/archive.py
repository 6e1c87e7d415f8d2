"""ZIP as OOXML uses it, in the one form that all readers agree on: what the directory says is what is there."""

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO

from ingress.attachments.structure.limits import (
    MAX_ENTRIES,
    MAX_RATIO,
    MAX_UNPACKED_BYTES,
    RATIO_FROM_BYTES,
    Unsound,
)

_END = struct.Struct("<4s4H2IH")
_LOCAL = struct.Struct("<4s5H3I2H")
_MAX_COMMENT_BYTES = 65_535
_MAX_DIRECTORY_BYTES = MAX_ENTRIES * 1024
_MAX_DESCRIPTOR_BYTES = 24
_CHUNK_BYTES = 2**18
_ENCRYPTED, _HAS_DESCRIPTOR = 0x0001, 0x0008
_TYPES = frozenset({0, stat.S_IFREG, stat.S_IFDIR})


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry and where its packed bytes stand; `end` is behind them."""

    name: str
    method: int
    crc: int
    size: int
    start: int
    end: int
    at: int


def load_entries(data: bytes) -> tuple[Entry, ...]:
    """All entries, found by the directory and compared with what stands before their bytes. Raises Unsound."""
    infos, directory_at = _load_directory(data)
    if sum(info.file_size for info in infos) > MAX_UNPACKED_BYTES:
        raise Unsound(f"it unpacks to more than {MAX_UNPACKED_BYTES} bytes")
    _check_names(infos)
    entries = tuple(_locate(data, info) for info in infos)
    _check_places(entries, directory_at)
    return entries


def unpack(data: bytes, entry: Entry) -> Iterator[bytes]:
    """The bytes of an entry, in pieces of 256 KiB. Raises Unsound unless they are as many and the same as announced."""
    size = crc = 0
    for piece in _inflate(data, entry):
        size += len(piece)
        if size > entry.size:
            break
        crc = zlib.crc32(piece, crc)
        yield piece
    if size != entry.size or crc != entry.crc:
        raise Unsound(f"its entry {entry.name!r} does not match its directory")


def _load_directory(data: bytes) -> tuple[Sequence[zipfile.ZipInfo], int]:
    at = data.rfind(b"PK\x05\x06", max(0, len(data) - _END.size - _MAX_COMMENT_BYTES))
    if at < 0 or at + _END.size > len(data):
        raise Unsound("it is cut off")
    _, disk, first_disk, here, count, size, offset, comment = _END.unpack_from(data, at)
    if disk or first_disk or here != count or at + _END.size + comment != len(data):
        raise Unsound("the end record of its directory is malformed")
    if count > MAX_ENTRIES or size > _MAX_DIRECTORY_BYTES:
        raise Unsound(f"it has more than {MAX_ENTRIES} entries")
    if offset + size != at or data.count(b"PK\x05\x06", offset) > 1:
        raise Unsound("its directory is not at the recorded offset")
    try:
        infos = zipfile.ZipFile(BytesIO(data)).infolist()
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
        raise Unsound("its directory can't be read") from error
    if len(infos) != count:
        raise Unsound("its directory does not have the recorded number of entries")
    return infos, offset


def _check_names(infos: Sequence[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    for info in infos:
        name = info.filename
        parts = name.removesuffix("/").split("/")
        if info.orig_filename != name or "\\" in name or ":" in name or not all(map(_is_plain, parts)):
            raise Unsound("the name of an entry points outside the archive")
        if stat.S_IFMT(info.external_attr >> 16) not in _TYPES:
            raise Unsound(f"its entry {name!r} is not a file")
        if name.casefold() in seen:
            raise Unsound(f"it has two entries {name!r}")
        seen.add(name.casefold())


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..") and part.isprintable()


def _locate(data: bytes, info: zipfile.ZipInfo) -> Entry:
    if info.flag_bits & _ENCRYPTED:
        raise Unsound("it is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Unsound(f"its entry {info.filename!r} uses an unsupported compression method")
    if info.file_size > RATIO_FROM_BYTES and info.file_size > MAX_RATIO * info.compress_size:
        raise Unsound(f"its entry {info.filename!r} unpacks to more than {MAX_RATIO} times its size")
    at = info.header_offset
    if at < 0 or at + _LOCAL.size > len(data):
        raise Unsound("its directory does not have the recorded number of entries")
    magic, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = _LOCAL.unpack_from(data, at)
    start = at + _LOCAL.size + name_bytes + extra_bytes
    name = data[at + _LOCAL.size : at + _LOCAL.size + name_bytes]
    announced = (info.CRC, info.compress_size, info.file_size)
    later = flags & _HAS_DESCRIPTOR and (crc, packed, size) == (0, 0, 0)
    same = (
        magic == b"PK\x03\x04"
        and method == info.compress_type
        and flags & ~_HAS_DESCRIPTOR == info.flag_bits & ~_HAS_DESCRIPTOR
        and name.decode("utf-8" if flags & 0x800 else "cp437", errors="replace") == info.filename
        and (later or (crc, packed, size) == announced)
    )
    if not same or start + info.compress_size > len(data):
        raise Unsound(f"its entry {info.filename!r} does not match its directory")
    return Entry(info.filename, method, info.CRC, info.file_size, start, start + info.compress_size, at)


def _check_places(entries: Sequence[Entry], directory_at: int) -> None:
    behind = 0
    for entry in sorted(entries, key=lambda entry: entry.at):
        if entry.at < behind:
            raise Unsound("its entries overlap")
        if entry.at > behind + _MAX_DESCRIPTOR_BYTES or (behind == 0 and entry.at):
            raise Unsound("there is data between its entries")
        behind = entry.end
    if not behind <= directory_at <= behind + _MAX_DESCRIPTOR_BYTES:
        raise Unsound("there is data between its entries and their directory")


def _inflate(data: bytes, entry: Entry) -> Iterator[bytes]:
    packed = memoryview(data)[entry.start : entry.end]
    if entry.method == zipfile.ZIP_STORED:
        for start in range(0, len(packed), _CHUNK_BYTES):
            yield bytes(packed[start : start + _CHUNK_BYTES])
        return
    inflater, at, waiting = zlib.decompressobj(-zlib.MAX_WBITS), 0, b""
    while not inflater.eof:
        if not waiting:
            waiting = bytes(packed[at : at + _CHUNK_BYTES])
            at += len(waiting)
        piece = inflater.decompress(waiting, _CHUNK_BYTES)
        waiting = inflater.unconsumed_tail
        if not (piece or waiting or at < len(packed)):
            break
        yield piece
    if not inflater.eof or inflater.unused_data or at < len(packed):
        raise Unsound(f"its entry {entry.name!r} does not match its directory")
