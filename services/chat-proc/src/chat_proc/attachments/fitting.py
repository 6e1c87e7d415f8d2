"""Pictures for models: large ones are shrunk in confined forks, and the original stays unchanged.

This process reads only the width and height from the header.
"""

import struct
import sys
from collections.abc import Sequence
from contextlib import suppress

from chat_proc.attachments.policy import MAX_SHRUNK_BYTES, MAX_SIDE_PX, SHRINK_LIMITS
from everturn.confinement.processes import ConfinedProcesses
from everturn.core.errors import Invalid
from everturn.core.work_slots import WorkSlots

SHRINKER = (sys.executable, "-I", "-m", "chat_proc.attachments.shrinker")
PROCESSES = 2
"""Pictures that a worker decodes at once. Each can take SHRINK_LIMITS.memory_bytes, a quarter of a worker's memory."""
WAITING = 64
"""Pictures that wait. A turn shrinks one after another, so a worker with few slots never has as many."""
MAX_HEADER_SEGMENTS = 1_000
"""Limit for the segments of a JPEG before the one with its size; the color profile of a photo takes at most 255."""
MAX_GIF_BLOCKS = 10_000
"""Limit for the blocks of a GIF before its first frame, such as the blocks of a comment."""
_GIF_EXTENSION, _GIF_FRAME = 0x21, 0x2C
_JPEG_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers of the segments that contain a JPEG's size."""


class PictureFitter:
    """Shrinks pictures. Tenants take turns, so that many pictures of one delay those of another by about one."""

    def __init__(self, *, command: Sequence[str] = SHRINKER, processes: int = PROCESSES) -> None:
        self._processes = ConfinedProcesses(
            command, processes=processes, limits=SHRINK_LIMITS, purpose="shrinks pictures"
        )
        self._slots = WorkSlots(processes, WAITING, "Too many pictures are being shrunk.")

    async def fit(self, data: bytes, tenant: str) -> bytes:
        """The picture in a size for models: the same bytes unless a side is too long. Waits for a free process: callers
        set a time limit.

        Raises Invalid if it can't be decoded within the limits, Unavailable if it can't be shrunk now.
        """
        size = try_read_size(data)
        if size is None or max(size) <= MAX_SIDE_PX:
            return data
        async with self._slots.acquire(tenant):
            result = await self._processes.request({}, data)
        if result.ended == "time":
            raise Invalid(f"Decoding the picture takes more than {SHRINK_LIMITS.cpu_s:g} s.")
        # A picture that controls its fork can answer anything.
        shrunk = try_read_size(result.answer)
        if shrunk is None or max(shrunk) > MAX_SIDE_PX or len(result.answer) > MAX_SHRUNK_BYTES:
            raise Invalid("The picture can't be decoded, or needs too much memory.")
        return result.answer

    async def close(self) -> None:
        """End the processes."""
        await self._processes.close()


def try_read_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the header; None if it is not a picture, or its header is incomplete."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return struct.unpack_from(">II", data, 16)
        if data.startswith((b"GIF87a", b"GIF89a")):
            return _read_gif_size(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _read_webp_size(data)
        return _try_read_jpeg_size(data) if data.startswith(b"\xff\xd8") else None
    except (struct.error, IndexError):
        return None


def _read_gif_size(data: bytes) -> tuple[int, int]:
    """The size that decoders give the picture: that of the screen, or of the first frame if that is larger."""
    width, height = struct.unpack_from("<HH", data, 6)
    with suppress(struct.error, IndexError):
        at = 13 + (3 << (data[10] & 7) + 1 if data[10] & 0x80 else 0)
        in_extension = False
        for _ in range(MAX_GIF_BLOCKS):
            if in_extension:
                in_extension = data[at] > 0
                at += 1 + data[at]
            elif data[at] == _GIF_EXTENSION:
                in_extension = True
                at += 2
            elif data[at] == _GIF_FRAME:
                left, top, frame_width, frame_height = struct.unpack_from("<HHHH", data, at + 1)
                return max(width, left + frame_width), max(height, top + frame_height)
            else:
                break
    return width, height


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
    for _ in range(MAX_HEADER_SEGMENTS):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 1 if marker == 0xFF else 2 if marker in _JPEG_ALONE else 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None
