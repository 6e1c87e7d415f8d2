"""Images: they end where their format says, and decode within the limits of pixels."""

import io

from PIL import GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from ingress.attachments.structure.image_ends import check_end
from ingress.attachments.structure.limits import (
    MAX_DECODED_PIXELS,
    MAX_JPEG_PIXELS,
    MAX_PIXELS,
    MAX_WEBP_PIXELS,
    Form,
    Unsound,
)

READERS = (GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin)
"""Imported once, because otherwise the first use of one imports the readers of all formats there are."""
_LIMITS = {"jpeg": MAX_JPEG_PIXELS, "webp": MAX_WEBP_PIXELS}
_SHRINK = 8


def preload_readers() -> None:
    """Also those that the readers above load when they meet something rare: a confined fork can't."""
    Image.init()


def check_image(form: Form, data: bytes) -> None:
    """Raises Unsound, and whatever the decoder raises for content that it can't decode."""
    try:
        opened = Image.open(io.BytesIO(data), formats=[form.upper()])
    except Image.DecompressionBombError as error:
        raise Unsound(f"it has more than {_LIMITS.get(form, MAX_PIXELS)} pixels") from error
    with opened as image:
        check_pixels(form, image.width, image.height)
        check_end(form, data)
        if form == "jpeg":
            image.draft(None, (image.width // _SHRINK, image.height // _SHRINK))
            image.load()
        else:
            _decode_frames(image)


def check_pixels(form: Form, width: int, height: int) -> None:
    """Nothing is decoded before this."""
    limit = _LIMITS.get(form, MAX_PIXELS)
    if width * height > limit:
        raise Unsound(f"it has {width} x {height} pixels, more than {limit}")


def _decode_frames(image: Image.Image) -> None:
    frames = int(getattr(image, "n_frames", 1))
    each = max(1, image.width * image.height)
    for frame in range(min(frames, 1 + MAX_DECODED_PIXELS // each)):
        image.seek(frame)
        image.load()
