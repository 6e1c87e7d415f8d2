"""A program of its own that reads one picture from standard input and writes a smaller one of the same format.

It decodes untrusted data, so it runs isolated: without our environment, as user nobody if started by root, unable to
open files, sockets or processes, and with limited memory and time.
"""

import ctypes
import io
import os
import resource
import sys

from PIL import Image, ImageOps

CPU_S = 10
MEMORY_BYTES = 512 * 2**20
"""In addition to the program's own memory: a hundred million pixels at four bytes each, and the shrunk copy."""
MAX_SIDE_PX = 2000
"""Maximum side of a picture for a model. Providers shrink larger ones themselves, and reject some above 2,000."""
MAX_SHRUNK_BYTES = 4 * 2**20
QUALITY = 85
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
_STANDARD_DESCRIPTORS = 3
_NOBODY = 65534
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38


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
        image = opened.convert(_choose_mode(opened)) if opened.mode not in ("L", "RGB", "RGBA") else opened
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
    if image.mode in ("1", "I", "F") or image.mode.startswith("I;"):
        return "L"
    return "RGBA" if image.has_transparency_data else "RGB"


def load_codecs() -> None:
    """Load codecs in advance: they load parts on first use, which a confined program can't."""
    Image.init()
    for form in _FORMATS:
        out = io.BytesIO()
        Image.new("RGB", (9, 9)).save(out, form)
        shrink_picture(out.getvalue(), 4)


def confine() -> None:
    """Forbid opening files, starting processes and reading other processes, and limit memory and time."""
    with open("/proc/self/statm", encoding="ascii") as numbers:
        size = int(numbers.read().split()[0]) * resource.getpagesize()
    libc = ctypes.CDLL(None)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for what, limit in (
        (resource.RLIMIT_AS, size + MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, _STANDARD_DESCRIPTORS),
    ):
        resource.setrlimit(what, (limit, limit))


def main() -> None:
    """Read the picture, confine the process, then decode it."""
    data = sys.stdin.buffer.read()
    load_codecs()
    Image.MAX_IMAGE_PIXELS = None  # the limits of memory and time bound it
    confine()
    sys.stdout.buffer.write(shrink_picture(data))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
