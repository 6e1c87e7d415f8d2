"""Pixels are counted before any is decoded."""

from pathlib import Path

import pytest
from uploads.images import image, png_chunk, png_of

from ingress.attachments.structure.images import check_image, check_pixels
from ingress.attachments.structure.limits import Form, Sound, Unsound


@pytest.mark.parametrize("form", ["png", "jpeg", "gif", "webp"])
def test_an_image_is_sound(form: Form) -> None:
    assert check_image(form, image(form)) == Sound()
    assert check_image(form, image(form, frames=3)) == Sound()


@pytest.mark.parametrize("form", ["png", "jpeg", "gif", "webp"])
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (7, 2)])
def test_a_tiny_image_is_sound(form: Form, size: tuple[int, int]) -> None:
    assert check_image(form, image(form, size)) == Sound()


def test_the_limit_of_pixels_is_one_for_all_formats() -> None:
    check_pixels(10_000, 10_000)
    with pytest.raises(Unsound, match="10000 x 10001 pixels"):
        check_pixels(10_000, 10_001)


def test_a_trailer_is_cut_off_and_that_is_said() -> None:
    video = b"\0\0\0\x18ftypmp42" + bytes(range(256))

    sound = check_image("jpeg", image("jpeg") + video)

    assert sound.content == image("jpeg")
    assert sound.change == f"{len(video)} bytes after the end of the picture were removed."


def test_a_png_with_too_many_pixels_is_refused_without_decoding() -> None:
    with pytest.raises(Unsound, match="pixels"):
        check_image("png", png_of(50_000, 50_000))


def test_an_image_that_is_another_one_or_none_is_not_read() -> None:
    for data in (image("gif"), b"\x89PNG\r\n\x1a\n" + png_chunk(b"IEND", b""), image("png")[:40]):
        with pytest.raises((Unsound, OSError, SyntaxError)):
            check_image("png", data)
    assert not list(Path().glob("*.png"))
