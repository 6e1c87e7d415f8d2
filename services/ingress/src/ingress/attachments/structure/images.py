"""Pictures: of bounded size, complete, and nothing but a picture."""

import io
import struct
from collections.abc import Callable, Mapping

from PIL import GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from ingress.attachments.structure.limits import (
    MAX_DECODED_PIXELS,
    MAX_DECODED_WEBP_PIXELS,
    MAX_PIXELS,
    Form,
    Sound,
    Unsound,
)

_PNG_HEAD = 8
_JPEG_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
"""Markers without a length: TEM and the restarts."""
_EOI, _SOS = 0xD9, 0xDA
_COMMENT_STARTS = (b"/*", b"//")
_SCRIPT = b"<script"
_FOREIGN_HEADS = (b"%PDF-",)
_HEAD_BYTES = 1024
"""PDF readers accept its header anywhere within this many first bytes."""

_TAIL_HEADS = (
    b"PK\x03\x04", b"PK\x05\x06", b"Rar!", b"7z\xbc\xaf", b"\x1f\x8b", b"\xd0\xcf\x11\xe0", b"MZ", b"\x7fELF",
    b"%PDF-", b"<", b"#!",
)  # fmt: skip
"""Headers of other file types that polyglots carry after a picture."""
_SAMPLE_BYTES = 64
_PRINTABLE = bytes((9, 10, 13, *range(0x20, 0x7F)))

READERS = (GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin)
"""Imported here, because otherwise the first use of one would import the readers of all formats."""
_SHRINK = 8

Image.MAX_IMAGE_PIXELS = None
"""Pillow's own limit would report no size. `check_pixels` runs before anything is decoded."""


def find_end(form: Form, data: bytes) -> int:
    """How many bytes of the file belong to the picture: all of them when only padding follows it.

    Raises Unsound when it is truncated, or is also a program, page, document or archive.

    The end is found by the image's own format, so that nothing is hidden after it and its first bytes are no code.
    """
    if any(head in data[:_HEAD_BYTES] for head in _FOREIGN_HEADS) or _SCRIPT in data.lower():
        raise Unsound("it is also a file of another type")
    end = _ENDS[form](data)
    if end > len(data):
        raise Unsound("it is truncated")
    tail = data[end:].strip(b"\0\r\n\t ")
    if not tail:
        return len(data)
    # Cameras append videos and notes of their own, and editors leave old bytes behind; neither is text.
    if tail.startswith(_TAIL_HEADS) or not tail[:_SAMPLE_BYTES].translate(None, _PRINTABLE):
        raise Unsound(f"{len(data) - end} bytes follow the image")
    return end


def _end_of_png(data: bytes) -> int:
    at = _PNG_HEAD
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4])
        kind = data[at + 4 : at + 8]
        at += 12 + length
        if kind == b"IEND":
            return at
    raise Unsound("it is truncated")


def _end_of_webp(data: bytes) -> int:
    size = int.from_bytes(data[4:8], "little")
    return 8 + size + size % 2 if 8 + size < len(data) else 8 + size


def _end_of_gif(data: bytes) -> int:
    if data[6:8] in _COMMENT_STARTS or (data[6:7] == b"=" and all(0x20 <= byte < 0x7F for byte in data[7:10])):
        raise Unsound("it is also a file of another type")
    at = 13 + _table_bytes(data[10:11])
    while at < len(data):
        kind, at = data[at], at + 1
        if kind == 0x3B:
            return at
        if kind == 0x21:
            at += 1
        elif kind == 0x2C:
            at += 9 + _table_bytes(data[at + 8 : at + 9]) + 1
        else:
            raise Unsound("its blocks are not valid GIF blocks")
        at = _skip_gif_blocks(data, at)
    raise Unsound("it is truncated")


def _skip_gif_blocks(data: bytes, at: int) -> int:
    while at < len(data) and data[at]:
        at += 1 + data[at]
    return at + 1


def _table_bytes(flags: bytes) -> int:
    """Bytes of the colour table that these flags declare."""
    return 3 << ((flags[0] & 7) + 1) if flags and flags[0] & 0x80 else 0


def _end_of_jpeg(data: bytes) -> int:
    """The end of the last image: cameras append further ones for depth and previews."""
    end = _end_of_one_jpeg(data, 0)
    while data[end : end + 3] == b"\xff\xd8\xff":
        end = _end_of_one_jpeg(data, end)
    return end


def _end_of_one_jpeg(data: bytes, start: int) -> int:
    at = start + 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            raise Unsound("its segments are not valid JPEG segments")
        marker = data[at + 1]
        if marker in _JPEG_ALONE:
            at += 2
        elif marker == 0xFF:
            at += 1
        elif marker == _EOI:
            return at + 2
        else:
            at = _skip_segment(data, at, marker)
    if data[at : at + 2] == b"\xff\xd9":
        return at + 2
    raise Unsound("it is truncated")


def _skip_segment(data: bytes, at: int, marker: int) -> int:
    length = data[at + 2 : at + 4]
    if length in _COMMENT_STARTS and at == 2:
        raise Unsound("it is also a file of another type")
    at += 2 + struct.unpack(">H", length)[0]
    return _end_of_scan(data, at) if marker == _SOS else at


def _end_of_scan(data: bytes, at: int) -> int:
    """The next marker that is neither a restart nor a stuffed byte."""
    while (at := data.find(b"\xff", at)) >= 0:
        following = data[at + 1] if at + 1 < len(data) else _EOI
        if following and following not in _JPEG_ALONE and following != 0xFF:
            return at
        at += 1 if following == 0xFF else 2
    return len(data)


_ENDS: Mapping[str, Callable[[bytes], int]] = {
    "png": _end_of_png,
    "webp": _end_of_webp,
    "gif": _end_of_gif,
    "jpeg": _end_of_jpeg,
}


def preload_readers() -> None:
    """Also load the readers that those above import on rare occasions: a confined fork can't import."""
    Image.init()


def check_image(form: Form, data: bytes) -> Sound:
    """Raises Unsound, and whatever the decoder raises for undecodable content.

    Bytes after the picture that belong to no other file type, such as the video of a motion photo, are cut off.
    """
    with Image.open(io.BytesIO(data), formats=[form.upper()]) as image:
        check_pixels(image.width, image.height)
        end = find_end(form, data)
        _decode(form, image)
    if end == len(data):
        return Sound()
    return Sound(content=data[:end], change=f"{len(data) - end} bytes after the end of the picture were removed.")


def check_pixels(width: int, height: int) -> None:
    """Check the size before anything is decoded."""
    if width * height > MAX_PIXELS:
        raise Unsound(f"it has {width} x {height} pixels, more than {MAX_PIXELS}")


def _decode(form: Form, image: Image.Image) -> None:
    """Decode as much as the memory of a check allows."""
    pixels = image.width * image.height
    if form == "jpeg":
        # A progressive one is held whole while it is decoded, at two bytes per value.
        if "progressive" not in image.info or pixels <= MAX_DECODED_PIXELS:
            image.draft(None, (max(1, image.width // _SHRINK), max(1, image.height // _SHRINK)))
            image.load()
        return
    limit = MAX_DECODED_WEBP_PIXELS if form == "webp" else MAX_DECODED_PIXELS
    frames = int(getattr(image, "n_frames", 1)) if pixels <= limit else 0
    for frame in range(min(frames, 1 + MAX_DECODED_PIXELS // max(1, pixels))):
        image.seek(frame)
        image.load()
