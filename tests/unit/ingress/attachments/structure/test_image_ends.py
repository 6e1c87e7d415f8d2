"""Images end where their formats say."""

import pytest
from uploads.images import gif_and_script, image, png_chunk

from ingress.attachments.structure.images import find_end
from ingress.attachments.structure.limits import Form, Unsound

FORMS: tuple[Form, ...] = ("png", "jpeg", "gif", "webp")


@pytest.mark.parametrize("form", FORMS)
def test_an_image_ends_with_its_file_or_with_padding(form: Form) -> None:
    for data in (image(form), image(form, frames=3), image(form) + b"\0\0", image(form) + b"\n"):
        assert find_end(form, data) == len(data)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tail", [b"*/=1;alert(1)", b"PK\x03\x04", b"\0\0x"])
def test_what_follows_an_image_is_refused(form: Form, tail: bytes) -> None:
    with pytest.raises(Unsound, match="follow the image"):
        find_end(form, image(form) + tail)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "tail", [b"\0\0\x01\x0a\x0e\0\0\0Image_UTC_Data", b"\0\0\0\x18ftypmp42", bytes(range(128, 256))]
)
def test_what_cameras_and_editors_leave_behind_an_image_is_no_part_of_it(form: Form, tail: bytes) -> None:
    assert find_end(form, image(form) + tail) == len(image(form))


def test_a_gif_is_no_program_because_of_its_width() -> None:
    data = image("gif", (61, 100))

    assert find_end("gif", data) == len(data)


@pytest.mark.parametrize("form", FORMS)
def test_an_image_that_is_cut_off_anywhere_is_refused(form: Form) -> None:
    whole = image(form)

    for end in range(16, len(whole)):
        with pytest.raises(Unsound):
            find_end(form, whole[:end])


def test_images_that_are_programs_or_pages_as_well_are_refused() -> None:
    jpeg, png = image("jpeg"), image("png")
    comment = png_chunk(b"tEXt", b"a\0<SCRIPT>alert(1)</SCRIPT>")
    for form, data in (
        ("gif", gif_and_script()),
        ("gif", b"GIF89a" + b"=1;a" + image("gif")[10:]),
        ("jpeg", jpeg[:4] + b"/*" + jpeg[6:]),
        ("png", png[:33] + comment + png[33:]),
        ("png", png[:33] + png_chunk(b"tEXt", b"a\0%PDF-1.4") + png[33:]),
    ):
        with pytest.raises(Unsound):
            find_end(form, data)  # type: ignore[arg-type]


def test_further_pictures_behind_a_jpeg_belong_to_it() -> None:
    data = image("jpeg") + image("jpeg")
    assert find_end("jpeg", data) == len(data)
    with pytest.raises(Unsound):
        find_end("jpeg", image("jpeg") + image("jpeg")[:-2])
