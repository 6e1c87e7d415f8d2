"""PDFs that carry, start or hide something are refused, and so are damaged ones."""

import zlib
from io import BytesIO

import pikepdf
import pytest
from uploads.pdfs import encrypted_pdf, flate_zeros, object_stream_bomb, pdf, stream
from uploads.zips import Member, build_zip

from ingress.attachments.structure.limits import Sound, Unsound
from ingress.attachments.structure.pdf import check_names, check_pdf

SCRIPT = b"<</S/JavaScript/JS(app.alert\\(1\\))>>"


@pytest.mark.parametrize(
    "data",
    [
        pdf(),
        pdf(pages=500),
        pdf(stream(b"0 0 m 9 9 l S"), page=b"/Contents 4 0 R"),
        pdf(stream(zlib.compress(b"0 0 m"), b"/Filter[/FlateDecode]"), page=b"/Contents 4 0 R"),
        pdf(stream(b"\xff\xd8\xff", b"/Filter/DCTDecode")),
        pdf(catalog=b"/OpenAction<</S/URI/URI(https://example.org/)>>"),
        pdf(catalog=b"/Lang(how \\(not\\) to use /JavaScript and /Launch)"),
        pdf(b"<</Font<</EF 3 0 R>>>>"),
        pdf() + b"\n" * 100,
        object_stream_bomb(2**20),
        pdf(b"13", stream(b"0 0 m 9 9 l S").replace(b"/Length 13", b"/Length 4 0 R"), b"true", b"1.5"),
    ],
)
def test_a_document_is_sound(data: bytes) -> None:
    assert check_pdf(data) == Sound()


DRAWN = pdf(stream(b"0 0 m 9 9 l S"), page=b"/Contents 4 0 R")


@pytest.mark.parametrize(
    "data",
    [
        DRAWN.replace(b"startxref\n", b"startxref\n9"),
        DRAWN.replace(b"%PDF-1.7\n", b"%PDF-1.7\n%a comment that moves everything\n"),
        b"\r\n\r\n" + DRAWN,
        b"\xef\xbb\xbf" + DRAWN,
        DRAWN.replace(b"/Length 13", b"/Length 12"),
    ],
)
def test_damage_that_all_readers_repair_is_repaired_in_the_stored_file(data: bytes) -> None:
    sound = check_pdf(data)

    assert "rebuilt" in sound.change
    assert check_pdf(sound.content) == Sound()
    with pikepdf.open(BytesIO(sound.content)) as rebuilt:
        assert rebuilt.pages[0].Contents.read_bytes().strip() == b"0 0 m 9 9 l S"


@pytest.mark.parametrize("hidden", [b"/OpenAction" + SCRIPT, b"/OpenAction<</S/Launch/F(calc.exe)>>"])
def test_the_content_of_a_damaged_document_is_checked_too(hidden: bytes) -> None:
    with pytest.raises(Unsound):
        check_pdf(pdf(catalog=hidden).replace(b"startxref\n", b"startxref\n9"))


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (pdf(pages=501), "500 pages"),
        (pdf(catalog=b"/OpenAction" + SCRIPT), "JavaScript"),
        (pdf(SCRIPT, catalog=b"/OpenAction 4 0 R"), "JavaScript"),
        (pdf(page=b"/AA<</O<</S/J#61vaScript/J#53(1)>>>>"), "JavaScript"),
        (pdf(catalog=b"/OpenAction<</S/Launch/F(calc.exe)>>"), "starts a program"),
        (pdf(catalog=b"/Names<</EmbeddedFiles<</Names[]>>>>"), "embedded file"),
        (pdf(stream(b"x"), b"<</Type/Filespec/F(a)/EF<</F 4 0 R>>>>"), "embedded file"),
        (pdf(stream(b"x", b"/Type/EmbeddedFile")), "embedded file"),
        (pdf(catalog=b"/AcroForm<</XFA(x)>>"), "XFA"),
        (pdf(flate_zeros(121 * 2**20)), "unpacks to more than"),
        (pdf(stream(zlib.compress(b"x"), b"/Filter[/FlateDecode/FlateDecode]")), "compressed more than once"),
        (encrypted_pdf(), "encrypted"),
        (encrypted_pdf(user=""), "encrypted"),
        (pdf()[:-20], "truncated"),
        (pdf()[:120] + b"\n%%EOF\n", "damaged"),
        (pdf() + build_zip([Member("a", b"x" * 2000, method=0)]), "follows its end"),
        (b"x" + pdf(), "file of another type"),
        (b"%PDF-1.7\n%<Script>alert(1)</script>\n" + pdf()[9:], "file of another type"),
    ],
)
def test_a_document_is_refused_for_what_it_holds(data: bytes, fault: str) -> None:
    with pytest.raises(Unsound, match=fault):
        check_pdf(data)


def test_names_count_and_strings_do_not() -> None:
    check_names(b"<< /Title (\\(/JS\\) /Launch) /ID <2f4a53> >>")
    with pytest.raises(Unsound, match="JavaScript"):
        check_names(b"<< /A << /S /JavaScript >> >>")
