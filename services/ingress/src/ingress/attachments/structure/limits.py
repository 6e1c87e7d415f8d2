"""What a file may be, and what the checks report of it."""

from dataclasses import dataclass
from typing import Literal

Form = Literal["pdf", "docx", "pptx", "xlsx", "jpeg", "png", "gif", "webp", "text"]
"""Formats whose structure is checked."""

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

MAX_PIXELS = 100_000_000
"""Width times height of a picture, also of one inside an Office file. Phones take up to 108 million in a JPEG of more
bytes than we accept; a page scanned at 600 dpi has 35 million."""
MAX_DECODED_PIXELS = 15_000_000
"""As many as 64 MiB hold at four bytes each, with room for the decoder. Of a larger picture only the structure is
checked, and of an animation the first frames are decoded."""
MAX_DECODED_WEBP_PIXELS = 4_000_000
"""The WebP decoder holds four pictures at once."""
MAX_CONTENT_BYTES = 32 * 2**20
"""Of the content that a check gives back in place of the file's own."""


class Unsound(Exception):
    """This file's structure is not acceptable (422); the text says why and reads on after `is refused:`."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A file that is acceptable.

    `charset` is the encoding of a text as a Content-Type header names it, empty for UTF-8 and for what is no text.
    `content` replaces the file's own bytes, and `change` is the sentence that says how it differs; both are empty when
    the file is stored as it is.
    """

    charset: str = ""
    content: bytes = b""
    change: str = ""
