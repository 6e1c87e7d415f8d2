"""The limits of files, and the results of the checks."""

from dataclasses import dataclass
from typing import Literal

from everturn.confinement.fork import ForkLimits

Form = Literal["pdf", "docx", "pptx", "xlsx", "jpeg", "png", "gif", "webp", "text"]
"""Formats whose structure is checked."""

MAX_PAGES = 500
MAX_PDF_UNPACKED_BYTES = 120_000_000
MAX_ENTRIES = 2_000
MAX_UNPACKED_BYTES = 120_000_000
MAX_RATIO = 200
RATIO_FROM_BYTES = 2**20
"""Entries that unpack to less are harmless, and short ones of equal bytes can have any ratio."""

MAX_PIXELS = 100_000_000
"""Width times height of a picture, also of one inside an Office file. Phones produce up to 108 million in a JPEG of
more bytes than are accepted; a page scanned at 600 dpi has 35 million."""
MAX_DECODED_PIXELS = 15_000_000
"""As many as 64 MiB hold at four bytes each, with room for the decoder. Of a larger picture only the structure is
checked, and of an animation the first frames are decoded."""
MAX_DECODED_WEBP_PIXELS = 4_000_000
"""The WebP decoder holds four pictures at once."""
MAX_CONTENT_BYTES = 32 * 2**20
"""Limit for the content with which a check replaces the file's own."""
MAX_LINE_BYTES = 8 * 1024
"""Limit for the line before the content; the longest fault fits, with every character escaped."""
MAX_FAULT_CHARS = 1_000

LIMITS = ForkLimits(memory_bytes=64 * 2**20, cpu_s=2.0, wall_s=10.0, answer_bytes=MAX_LINE_BYTES + MAX_CONTENT_BYTES)
"""Limits for the check of one file."""


class Unsound(Exception):
    """This file's structure is not acceptable (422); the text says why and reads on after `is refused:`."""


@dataclass(frozen=True, slots=True)
class Sound:
    """An acceptable file.

    `charset` is the encoding of a text in Content-Type syntax, empty for UTF-8 and for other files. `content` replaces
    the file's own bytes, and `change` is the sentence that says how it differs; both are empty when the file is stored
    unchanged.
    """

    charset: str = ""
    content: bytes = b""
    change: str = ""
