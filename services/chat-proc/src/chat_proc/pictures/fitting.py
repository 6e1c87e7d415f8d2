"""Pictures for models: large ones are shrunk in a process of their own, and the original stays unchanged."""

import asyncio
import struct
import sys

from chat_proc.pictures.shrinker import MAX_SHRUNK_BYTES, MAX_SIDE_PX
from everturn.core.errors import Unavailable

SHRINKER = (sys.executable, "-I", "-m", "chat_proc.pictures.shrinker")
TIMEOUT_S = 30.0
"""Wall time limit; the process limits its own CPU time, but waits on a busy machine."""
_JPEG_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers of the segments that contain a JPEG's size."""


class PictureFitter:
    """Decodes one picture at a time in a worker, because each can take half a gigabyte."""

    def __init__(self, *, command: tuple[str, ...] = SHRINKER, timeout_s: float = TIMEOUT_S) -> None:
        self._command = command
        self._timeout_s = timeout_s
        self._one = asyncio.Semaphore(1)

    async def fit(self, data: bytes) -> bytes:
        """The picture in a size for models: the same bytes unless a side is too long. Raises Unavailable."""
        size = try_read_size(data)
        if size is None or max(size) <= MAX_SIDE_PX:
            return data
        async with self._one:
            return await self._shrink(data)

    async def _shrink(self, data: bytes) -> bytes:
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={"LC_ALL": "C.UTF-8"},
            )
        except OSError as error:
            raise Unavailable("Could not start the program that shrinks pictures.") from error
        try:
            async with asyncio.timeout(self._timeout_s):
                shrunk, _ = await child.communicate(data)
        except TimeoutError as error:
            raise Unavailable(f"Shrinking the picture takes more than {self._timeout_s:g} s.") from error
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode != 0 or not 0 < len(shrunk) <= MAX_SHRUNK_BYTES:
            raise Unavailable("The picture can't be decoded, or needs too much memory or time.")
        return shrunk


def try_read_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the header; None if it is not a picture, or its header is incomplete."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return struct.unpack_from(">II", data, 16)
        if data.startswith((b"GIF87a", b"GIF89a")):
            return struct.unpack_from("<HH", data, 6)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _read_webp_size(data)
        return _try_read_jpeg_size(data) if data.startswith(b"\xff\xd8") else None
    except (struct.error, IndexError):
        return None


def _read_webp_size(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L":
            packed = int.from_bytes(data[21:25], "little")
            return 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


def _try_read_jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 1 if marker == 0xFF else 2 if marker in _JPEG_ALONE else 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None
