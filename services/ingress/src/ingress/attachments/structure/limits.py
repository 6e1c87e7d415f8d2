"""What a file may be, by the design, and how one that may not be is told."""

from typing import Literal

Form = Literal["pdf", "docx", "pptx", "xlsx", "jpeg", "png", "gif", "webp"]
"""Formats whose structure is checked. Text has none beside its encoding."""

MEMORY_BYTES = 64 * 2**20
"""What checking one file may take beside the file itself."""
CPU_S = 2.0
WALL_S = 10.0
"""A check that a busy machine keeps waiting is not the file's fault, so this is the limit of last resort."""

MAX_PAGES = 500
MAX_PDF_UNPACKED_BYTES = 120_000_000
MAX_ENTRIES = 2_000
MAX_UNPACKED_BYTES = 120_000_000
MAX_RATIO = 200
RATIO_FROM_BYTES = 2**20
"""Entries that unpack to less are no bombs, and short ones of equal bytes have any ratio."""

MAX_PIXELS = 15_000_000
"""As many as 64 MiB hold at four bytes each, with room for the decoder."""
MAX_WEBP_PIXELS = 4_000_000
"""Its decoder holds four pictures at once."""
MAX_JPEG_PIXELS = 50_000_000
"""A JPEG is decoded at an eighth of its size, as its format allows."""
MAX_DECODED_PIXELS = 15_000_000
"""Of an animation's frames; what follows is not decoded."""


class Unsound(Exception):
    """This file's structure is not acceptable (422); the text says why and reads on after `is refused:`."""
