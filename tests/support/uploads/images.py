"""Images, sound ones and such as are refused."""

import struct
import zlib
from io import BytesIO

from PIL import Image


def image(form: str, size: tuple[int, int] = (8, 8), *, frames: int = 1) -> bytes:
    """An image of one colour as Pillow writes it; more frames where the format has them."""
    out = BytesIO()
    more = [Image.new("RGB", size, (number, 0, 90)) for number in range(1, frames)]
    options = {"save_all": True, "append_images": more} if more and form != "jpeg" else {}
    Image.new("RGB", size, (200, 10, 90)).save(out, form.upper(), **options)
    return out.getvalue()


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width: int, height: int, packed: bytes = b"") -> bytes:
    """A PNG that announces its size; decoding it would unpack `packed`."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + header
        + png_chunk(b"IDAT", packed or zlib.compress(b"\0" * 64))
        + png_chunk(b"IEND", b"")
    )


def png_of_zeros(width: int, height: int) -> bytes:
    """A sound PNG of one bit a pixel: 20,000 x 20,000 of them take 48 kB, and gigabytes where they are decoded."""
    packer, row = zlib.compressobj(9), bytes(1 + (width + 7) // 8)
    packed = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", packed) + png_chunk(b"IEND", b"")


def gif_and_script() -> bytes:
    """A sound GIF whose bytes are a program as well: its width opens a comment that its comment block closes."""
    gif = image("gif")
    body = b"*/=1;alert(1);/*"
    comment = b"\x21\xfe" + bytes([len(body)]) + body + b"\0"
    return gif[:6] + b"/*\x08\x00" + gif[10:-1] + comment + b";" + b"*/"
