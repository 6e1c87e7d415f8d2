"""Large pictures become small ones in a process of their own; small ones stay as they are."""

import asyncio
import io
import resource
import sys

import pytest
from PIL import Image
from uploads.images import image, png_of, png_of_zeros

from chat_proc.pictures.fitting import PictureFitter, try_read_size
from chat_proc.pictures.shrinker import MAX_SHRUNK_BYTES, MAX_SIDE_PX, shrink_picture
from everturn.core.errors import Unavailable

FORMS = ("png", "jpeg", "gif", "webp")


@pytest.mark.parametrize("form", FORMS)
async def test_a_small_picture_stays_as_it_is(form: str) -> None:
    data = image(form, (300, 200))

    assert try_read_size(data) == (300, 200)
    assert await PictureFitter().fit(data) is data


@pytest.mark.parametrize("form", FORMS)
async def test_a_large_picture_becomes_a_smaller_one_of_its_format(form: str) -> None:
    data = image(form, (4001, 1000))

    fitted = await PictureFitter().fit(data)

    with Image.open(io.BytesIO(fitted)) as opened:
        assert opened.format == form.upper()
        assert opened.width <= MAX_SIDE_PX
        assert abs(opened.width / opened.height - 4.001) < 0.05


@pytest.mark.parametrize(
    "data", [png_of_zeros(10_000, 10_000), image("jpeg", (8000, 6000)), image("webp", (5000, 4000))]
)
async def test_as_many_pixels_as_are_accepted_fit_the_memory(data: bytes) -> None:
    size = try_read_size(await PictureFitter().fit(data))

    assert size is not None
    assert max(size) <= MAX_SIDE_PX


async def test_one_after_the_other_is_decoded() -> None:
    data, fitter = image("png", (2500, 100)), PictureFitter()

    assert len(set(await asyncio.gather(*(fitter.fit(data) for _ in range(3))))) == 1


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_pictures_of_all_modes_are_made_smaller(mode: str) -> None:
    out = io.BytesIO()
    Image.new(mode, (3000, 10)).save(out, "PNG")

    assert try_read_size(shrink_picture(out.getvalue())) == (2000, 7)


def test_a_photo_is_upright_and_a_noisy_picture_small_enough() -> None:
    out, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.new("CMYK", (3000, 1500)).save(out, "JPEG", exif=exif)
    noise = io.BytesIO()
    Image.effect_noise((2400, 2400), 90).convert("RGB").save(noise, "PNG", compress_level=1)

    assert try_read_size(shrink_picture(out.getvalue())) == (1000, 2000)
    assert len(shrink_picture(noise.getvalue())) <= MAX_SHRUNK_BYTES


@pytest.mark.parametrize(
    "data", [png_of(9000, 9000), png_of_zeros(40_000, 40_000), b"\xff\xd8\xff\xc0\0\x11\x08\x20\0\x20\0"]
)
async def test_what_can_not_be_decoded_or_takes_too_much_is_not_shown(data: bytes) -> None:
    with pytest.raises(Unavailable):
        await PictureFitter().fit(data)


async def test_a_program_that_hangs_or_does_not_start_is_no_picture() -> None:
    data = image("png", (2500, 100))
    hangs = (sys.executable, "-c", "import sys; sys.stdin.read(); sys.stdin.close(); import signal; signal.pause()")
    for fitter in (PictureFitter(command=hangs, timeout_s=0.5), PictureFitter(command=("/nowhere",))):
        with pytest.raises(Unavailable):
            await fitter.fit(data)


ATTACKS = """
import os, socket, sys
from chat_proc.pictures import shrinker
def works(attack):
    try:
        return attack() is not None
    except OSError:
        return False
shrinker.confine()
attacks = (lambda: open("/etc/passwd"), socket.socket, os.fork, lambda: os.listdir("/proc/1"), os.pipe)
sys.stdout.write("".join(str(int(works(attack))) for attack in attacks))
sys.stdout.flush()
"""


async def test_a_decoder_that_was_taken_over_opens_and_starts_nothing() -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", ATTACKS, stdout=asyncio.subprocess.PIPE)

    said, _ = await child.communicate()

    assert said == b"00000"
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 3


@pytest.mark.parametrize(
    "data", [b"", b"words", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBPVP9 ", b"GIF89a"]
)
def test_what_has_no_whole_header_has_no_size(data: bytes) -> None:
    assert try_read_size(data) is None
