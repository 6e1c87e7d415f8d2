"""Pixels are counted before any is decoded."""

from pathlib import Path

import pytest
from uploads.images import image, png_chunk, png_of

from ingress.attachments.structure.images import check_image, check_pixels
from ingress.attachments.structure.limits import Form, Unsound


@pytest.mark.parametrize("form", ["png", "jpeg", "gif", "webp"])
def test_an_image_is_sound(form: Form) -> None:
    check_image(form, image(form))
    check_image(form, image(form, frames=3))


@pytest.mark.parametrize(
    ("form", "width", "height"), [("png", 5_000, 3_000), ("webp", 2_000, 2_000), ("jpeg", 10_000, 5_000)]
)
def test_each_format_has_its_limit_of_pixels(form: Form, width: int, height: int) -> None:
    check_pixels(form, width, height)
    with pytest.raises(Unsound, match="pixels"):
        check_pixels(form, width, height + 1)


def test_a_png_of_fifty_thousand_by_fifty_thousand_is_refused_without_decoding() -> None:
    with pytest.raises(Unsound, match="pixels"):
        check_image("png", png_of(50_000, 50_000))


def test_an_image_that_is_another_one_or_none_is_not_read() -> None:
    for data in (image("gif"), b"\x89PNG\r\n\x1a\n" + png_chunk(b"IEND", b""), image("png")[:40]):
        with pytest.raises((Unsound, OSError, SyntaxError)):
            check_image("png", data)
    assert not list(Path().glob("*.png"))
