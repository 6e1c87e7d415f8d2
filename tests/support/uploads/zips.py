"""ZIP archives in which every field can lie."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Member:
    """One entry. What is None is computed; `at` is where the directory says it begins."""

    name: str
    data: bytes = b""
    packed: bytes | None = None
    method: int = 8
    flags: int = 0x800
    size: int | None = None
    packed_size: int | None = None
    crc: int | None = None
    mode: int = 0o100644
    local_name: str | None = None
    at: int | None = None
    listed: bool = True

    def body(self) -> bytes:
        if self.packed is not None:
            return self.packed
        return deflate(self.data) if self.method == 8 else self.data

    def numbers(self) -> tuple[int, int, int]:
        return (
            zlib.crc32(self.data) if self.crc is None else self.crc,
            len(self.body()) if self.packed_size is None else self.packed_size,
            len(self.data) if self.size is None else self.size,
        )


@dataclass(frozen=True)
class End:
    """What the end of the directory says, where it lies."""

    count: int | None = None
    offset: int | None = None
    comment: bytes = field(default=b"")


AS_IT_IS = End()


def deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def build_zip(members: Sequence[Member], end: End = AS_IT_IS, *, head: bytes = b"", tail: bytes = b"") -> bytes:
    """The members in order, their directory, its end; `head` and `tail` stand around it."""
    out, directory = bytearray(head), bytearray()
    for member in members:
        at = len(out) if member.at is None else member.at
        if member.at is None:
            out += _local(member) + member.body()
        if member.listed:
            directory += _central(member, at)
    listed = sum(member.listed for member in members)
    count = listed if end.count is None else end.count
    offset = len(out) if end.offset is None else end.offset
    closing = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, count, count, len(directory), offset, len(end.comment))
    return bytes(out + directory) + closing + end.comment + tail


def bomb(name: str, size: int) -> Member:
    """`size` zero bytes, packed about a thousand to one."""
    packer, piece = zlib.compressobj(9, zlib.DEFLATED, -15), bytes(2**20)
    packed = b"".join(packer.compress(piece[: min(2**20, size - at)]) for at in range(0, size, 2**20))
    crc = 0
    for at in range(0, size, 2**20):
        crc = zlib.crc32(piece[: min(2**20, size - at)], crc)
    return Member(name, packed=packed + packer.flush(), size=size, crc=crc)


def _local(member: Member) -> bytes:
    name = (member.name if member.local_name is None else member.local_name).encode()
    crc, packed, size = member.numbers()
    head = (b"PK\x03\x04", 20, member.flags, member.method, 0, 33, crc, packed, size, len(name), 0)
    return struct.pack("<4s5H3I2H", *head) + name


def _central(member: Member, at: int) -> bytes:
    name, (crc, packed, size) = member.name.encode(), member.numbers()
    first = (b"PK\x01\x02", 0x0314, 20, member.flags, member.method, 0, 33, crc, packed, size, len(name))
    return struct.pack("<4s6H3IH4HII", *first, 0, 0, 0, 0, member.mode << 16, at) + name
