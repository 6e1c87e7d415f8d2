"""Large pictures become small ones in confined forks; small ones stay as they are."""

import asyncio
import io
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from PIL import Image
from uploads.images import image, png_of, png_of_zeros

from chat_proc.attachments.fitting import PictureFitter, try_read_size
from chat_proc.attachments.policy import MAX_SHRUNK_BYTES, MAX_SIDE_PX
from chat_proc.attachments.shrinker import shrink_picture
from everturn.core.errors import Invalid, Unavailable

FORMS = ("png", "jpeg", "gif", "webp")
LARGE = image("png", (2500, 100))


@pytest.fixture
async def fitter() -> AsyncIterator[PictureFitter]:
    fitter = PictureFitter()
    yield fitter
    await fitter.close()


@pytest.mark.parametrize("form", FORMS)
async def test_a_small_picture_stays_as_it_is(form: str, fitter: PictureFitter) -> None:
    data = image(form, (300, 200))

    assert try_read_size(data) == (300, 200)
    assert await fitter.fit(data, "acme") is data


@pytest.mark.parametrize("form", FORMS)
async def test_a_large_picture_becomes_a_smaller_one_of_its_format(form: str, fitter: PictureFitter) -> None:
    data = image(form, (4001, 1000))

    fitted = await fitter.fit(data, "acme")

    with Image.open(io.BytesIO(fitted)) as opened:
        assert opened.format == form.upper()
        assert opened.width <= MAX_SIDE_PX
        assert abs(opened.width / opened.height - 4.001) < 0.05


@pytest.mark.parametrize(
    "data", [png_of_zeros(10_000, 10_000), image("jpeg", (8000, 6000)), image("webp", (5000, 4000))]
)
async def test_as_many_pixels_as_are_accepted_fit_the_memory(data: bytes, fitter: PictureFitter) -> None:
    size = try_read_size(await fitter.fit(data, "acme"))

    assert size is not None
    assert max(size) <= MAX_SIDE_PX


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_pictures_of_all_modes_are_made_smaller(mode: str) -> None:
    out = io.BytesIO()
    Image.new(mode, (3000, 10)).save(out, "PNG")

    assert try_read_size(shrink_picture(out.getvalue())) == (2000, 7)


def test_sixteen_bits_of_grey_are_scaled() -> None:
    grey = Image.new("I;16", (3000, 1))
    grey.putdata([x * 65_535 // 3000 for x in range(3000)])
    file = io.BytesIO()
    grey.save(file, "PNG")

    shrunk = Image.open(io.BytesIO(shrink_picture(file.getvalue())))

    assert [shrunk.getpixel((x, 0)) for x in (0, 500, 1000, 1500)] == [0, 64, 128, 192]


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
async def test_what_can_not_be_decoded_or_takes_too_much_is_not_shown(data: bytes, fitter: PictureFitter) -> None:
    with pytest.raises(Invalid):
        await fitter.fit(data, "acme")

    assert try_read_size(await fitter.fit(LARGE, "acme")) == (2000, 80)


async def test_a_photo_that_lies_on_its_side_is_turned_in_a_fork(fitter: PictureFitter) -> None:
    out, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.new("CMYK", (3000, 1500)).save(out, "JPEG", exif=exif)

    assert try_read_size(await fitter.fit(out.getvalue(), "acme")) == (1000, 2000)


async def test_a_tenant_with_many_pictures_does_not_delay_others() -> None:
    fitter, order = PictureFitter(processes=1), list[str]()

    async def fit(tenant: str) -> None:
        await fitter.fit(LARGE, tenant)
        order.append(tenant)

    await asyncio.gather(*map(fit, ["greedy"] * 5), fit("acme"))
    await fitter.close()

    assert order == ["greedy", "greedy", "acme", "greedy", "greedy", "greedy"]


SHRINKER = """
from chat_proc.attachments import shrinker
{function}
shrinker.shrink_picture, shrinker.preload_codecs = shrink, lambda: None
shrinker.main()
"""


def write_shrinker(folder: Path, function: str) -> tuple[str, ...]:
    """The command of a shrinker in whose forks a picture has control."""
    program = folder / "malicious.py"
    program.write_text(SHRINKER.format(function=function))
    return sys.executable, "-I", str(program)


ATTACKS = """
import os, socket, struct
from pathlib import Path

def open_instead_of_closed():
    os.close(0)
    return os.open("/etc/passwd", os.O_RDONLY)

def connect_instead_of_closed():
    os.close(1)
    return socket.create_connection(("127.0.0.1", 9), timeout=0.1)

def works(attack):
    try:
        return attack() is not None
    except ConnectionRefusedError:
        return True
    except OSError:
        return False

def shrink(data):
    attacks = (
        lambda: open("/etc/passwd"), open_instead_of_closed, socket.socket, connect_instead_of_closed, os.fork, os.pipe,
        lambda: os.listdir("/proc/1"), lambda: os.kill(os.getppid(), 0) or True,
        lambda: Path("/tmp/left").touch() or True,
    )
    return b"GIF89a" + struct.pack("<HH", 1, 1 + sum(map(works, attacks)))
"""


UNCONFINED = """
from everturn.confinement import fork
fork.allow_only_computing = lambda: None
"""


@pytest.mark.parametrize(("extra", "is_confined"), [("", True), (UNCONFINED, False)])
async def test_a_decoder_that_was_taken_over_opens_and_starts_nothing(
    extra: str, is_confined: bool, tmp_path: Path
) -> None:
    fitter = PictureFitter(command=write_shrinker(tmp_path, ATTACKS + extra))

    answer = await fitter.fit(LARGE, "acme")
    await fitter.close()

    assert (try_read_size(answer) == (1, 1)) is is_confined


ANSWERS = ("b''", "b'words'", "b'GIF89a' + bytes([255] * 4)", "b'GIF89a' + bytes([1] * 4) + bytes(2**23)", "1 / 0")


@pytest.mark.parametrize("answer", ANSWERS)
async def test_an_answer_that_is_no_small_picture_is_not_shown(answer: str, tmp_path: Path) -> None:
    fitter = PictureFitter(command=write_shrinker(tmp_path, f"def shrink(data): return {answer}"))

    try:
        shown = await fitter.fit(LARGE, "acme")
    except Invalid:
        shown = b""
    await fitter.close()

    assert len(shown) <= MAX_SHRUNK_BYTES
    assert not shown or try_read_size(shown) == (257, 257)


def find_processes(mark: str) -> list[int]:
    """Processes with this text in their command line, with their forks."""
    found = list[int]()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended since it was listed
    return found


async def wait_for_processes(mark: str, count: int) -> None:
    async with asyncio.timeout(20):
        while len(find_processes(mark)) != count:  # noqa: ASYNC110 - nothing announces the end of a fork
            await asyncio.sleep(0.02)


async def test_a_cancelled_request_loses_no_process(tmp_path: Path) -> None:
    spins = "def shrink(data):\n    while True: pass"
    fitter = PictureFitter(command=write_shrinker(tmp_path, spins), processes=1)

    for _ in range(2):
        fitting = asyncio.create_task(fitter.fit(LARGE, "acme"))
        await wait_for_processes(str(tmp_path), 2)
        fitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fitting
        await wait_for_processes(str(tmp_path), 0)


async def test_a_request_that_is_cancelled_while_its_process_starts_loses_none(tmp_path: Path) -> None:
    fitter = PictureFitter(command=write_shrinker(tmp_path, "def shrink(data): return data"))

    for delay_s in (0, 0, 0.001, 0.002, 0.005, 0.02):
        fitting = asyncio.create_task(fitter.fit(LARGE, "acme"))
        await asyncio.sleep(delay_s)
        fitting.cancel()
        await asyncio.wait({fitting})
    await fitter.close()

    await wait_for_processes(str(tmp_path), 0)


async def test_a_program_that_does_not_start_is_unavailable() -> None:
    for command in (("/nowhere",), ("/bin/true",)):
        fitter = PictureFitter(command=command)
        with pytest.raises(Unavailable):
            await fitter.fit(LARGE, "acme")


async def test_without_the_filter_nothing_is_decoded(tmp_path: Path) -> None:
    function = """
from everturn.confinement import system_calls
system_calls._TABLES.clear()
def shrink(data): return b"GIF89a" + bytes([1] * 4)
"""
    fitter = PictureFitter(command=write_shrinker(tmp_path, function))

    with pytest.raises(Invalid):
        await fitter.fit(LARGE, "acme")
    await fitter.close()


def test_the_header_of_a_jpeg_is_read_in_bounded_steps() -> None:
    assert try_read_size(b"\xff\xd8" + b"\xff" * 10_000_000) is None


@pytest.mark.parametrize(
    "data", [b"", b"words", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBPVP9 ", b"GIF89a"]
)
def test_what_has_no_whole_header_has_no_size(data: bytes) -> None:
    assert try_read_size(data) is None


def test_a_gif_is_as_large_as_its_first_frame() -> None:
    out = io.BytesIO()
    Image.new("P", (300, 200)).save(out, "GIF", comment=b"x" * 600)
    data = bytearray(out.getvalue())
    struct.pack_into("<HH", data, 6, 10, 10)

    assert try_read_size(bytes(data)) == (300, 200)


def test_the_blocks_before_the_frame_of_a_gif_are_read_in_bounded_steps() -> None:
    screen = b"GIF89a" + struct.pack("<HHBBB", 10, 10, 0, 0, 0)

    assert try_read_size(screen + b"\x21\xfe" + b"\x01" * 10_000_000) == (10, 10)
