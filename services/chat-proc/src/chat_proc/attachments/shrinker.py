"""The program that shrinks pictures, `python -I -m chat_proc.attachments.shrinker`: one confined fork for each picture.

It decodes untrusted content, so a fork can only compute and answer. The answer is a smaller picture in the same format.
"""

import io
import logging
import sys

from PIL import Image, ImageOps

from chat_proc.attachments.policy import MAX_SHRUNK_BYTES, MAX_SIDE_PX, SHRINK_LIMITS
from everturn.confinement.fork import hide_process, preload_encodings
from everturn.confinement.processes import run_answering

QUALITY = 85
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


def shrink_picture(data: bytes, side_px: int = MAX_SIDE_PX) -> bytes:
    """The first frame, upright, with sides of at most `side_px`, in the original format.

    Raises the decoder's exceptions for content that it can't decode.
    """
    with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
        form = opened.format
        opened.draft(None, (side_px, side_px))
        if opened.mode in ("1", "P", "I", "F") or opened.mode.startswith("I;"):
            # Averaging below needs colours; this many pixels are enough to convert.
            opened.thumbnail((2 * side_px, 2 * side_px), Image.Resampling.NEAREST)
        image = opened
        if opened.mode == "I" or opened.mode.startswith("I;"):
            # Sixteen bits of grey, which a conversion would cut off at 255 instead of scaling them.
            image = opened.point(lambda grey: grey / 256).convert("L")
        elif opened.mode not in ("L", "RGB", "RGBA"):
            image = opened.convert(_choose_mode(opened))
        image.thumbnail((side_px, side_px), Image.Resampling.BOX)
        upright = ImageOps.exif_transpose(image)
    if form == "JPEG" and upright.mode == "RGBA":
        upright = upright.convert("RGB")
    out = io.BytesIO()
    upright.save(out, form, quality=QUALITY)
    if out.tell() > MAX_SHRUNK_BYTES and side_px > 1:
        return shrink_picture(data, side_px // 2)
    return out.getvalue()


def _choose_mode(image: Image.Image) -> str:
    if image.mode in ("1", "F"):
        return "L"
    return "RGBA" if image.has_transparency_data else "RGB"


def preload_codecs() -> None:
    """Load the codecs: they load parts on first use, which a fork can't."""
    Image.init()
    for form in _FORMATS:
        out = io.BytesIO()
        Image.new("RGB", (9, 9)).save(out, form)
        shrink_picture(out.getvalue(), 4)


def main() -> None:
    """Answer until the input ends."""
    hide_process()
    logging.disable(logging.CRITICAL)
    preload_encodings()
    preload_codecs()
    Image.MAX_IMAGE_PIXELS = None  # the limits of memory and time bound it
    run_answering(sys.stdin.buffer, sys.stdout.buffer, lambda _, data: shrink_picture(data), SHRINK_LIMITS)


if __name__ == "__main__":
    main()
