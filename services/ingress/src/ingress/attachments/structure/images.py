"""Pictures: of bounded size, whole, and nothing but a picture."""

import io

from PIL import GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from ingress.attachments.structure.image_ends import find_end
from ingress.attachments.structure.limits import (
    MAX_DECODED_PIXELS,
    MAX_DECODED_WEBP_PIXELS,
    MAX_PIXELS,
    Form,
    Sound,
    Unsound,
)

READERS = (GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin)
"""Imported once, because otherwise the first use of one imports the readers of all formats there are."""
_SHRINK = 8

Image.MAX_IMAGE_PIXELS = None
"""Pillow's own limit would name no size. `check_pixels` comes before anything is decoded."""


def preload_readers() -> None:
    """Also those that the readers above load when they meet something rare: a confined fork can't."""
    Image.init()


def check_image(form: Form, data: bytes) -> Sound:
    """Raises Unsound, and whatever the decoder raises for content that it can't decode.

    Bytes that follow the picture and belong to no other kind of file, such as the video of a motion photo, are cut off.
    """
    with Image.open(io.BytesIO(data), formats=[form.upper()]) as image:
        check_pixels(image.width, image.height)
        end = find_end(form, data)
        _decode(form, image)
    if end == len(data):
        return Sound()
    return Sound(content=data[:end], change=f"{len(data) - end} bytes after the end of the picture were removed.")


def check_pixels(width: int, height: int) -> None:
    """Nothing is decoded before this."""
    if width * height > MAX_PIXELS:
        raise Unsound(f"it has {width} x {height} pixels, more than {MAX_PIXELS}")


def _decode(form: Form, image: Image.Image) -> None:
    """As much as the memory of a check holds."""
    pixels = image.width * image.height
    if form == "jpeg":
        # A progressive one is held whole while it is decoded, at two bytes for each value.
        if "progressive" not in image.info or pixels <= MAX_DECODED_PIXELS:
            image.draft(None, (max(1, image.width // _SHRINK), max(1, image.height // _SHRINK)))
            image.load()
        return
    limit = MAX_DECODED_WEBP_PIXELS if form == "webp" else MAX_DECODED_PIXELS
    frames = int(getattr(image, "n_frames", 1)) if pixels <= limit else 0
    for frame in range(min(frames, 1 + MAX_DECODED_PIXELS // max(1, pixels))):
        image.seek(frame)
        image.load()
