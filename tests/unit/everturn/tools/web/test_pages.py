import pytest

from everturn.errors import Invalid, Unavailable
from everturn.tools.web.client import Fetched
from everturn.tools.web.pages import MAX_HTML_BYTES, PageReader, is_text

URL = "https://a.example/files/Annual%20report.txt?x=1"
PARAGRAPH = "<p>The moon pulls at the sea, and the sea answers twice a day with a tide of its own.</p>"


def fetched(body: bytes, mime: str, charset: str | None = None, *, cut: bool = False) -> Fetched:
    return Fetched(URL, mime, charset, body, cut)


async def test_html_is_read_as_text() -> None:
    html = f"<html><head><title>Tides</title></head><body><article>{PARAGRAPH * 5}</article></body></html>"

    page = await PageReader().read(fetched(html.encode(), "text/html"))

    assert page.title == "Tides" and "The moon pulls" in page.text and not page.cut


async def test_a_page_without_a_title_is_named_after_its_address() -> None:
    page = await PageReader().read(fetched(b"<html></html>", "text/html"))

    assert (page.title, page.text) == ("Annual report.txt", "")


async def test_very_long_html_is_cut_before_it_is_read() -> None:
    html = b"<html><body><article>" + PARAGRAPH.encode() * 20 + b"<!--" + b"x" * MAX_HTML_BYTES

    page = await PageReader().read(fetched(html, "text/html"))

    assert page.cut and "The moon pulls" in page.text


async def test_html_that_takes_too_long_is_given_up_and_its_reader_killed() -> None:
    with pytest.raises(Unavailable, match=r"more than 0\.01 s"):
        await PageReader(timeout_s=0.01).read(fetched(PARAGRAPH.encode() * 1000, "text/html"))


@pytest.mark.parametrize(
    ("body", "mime", "charset", "text"),
    [
        ("Grüße".encode("latin-1"), "text/plain", "iso-8859-1", "Grüße"),
        (b"\xef\xbb\xbfa,b", "text/csv", None, "a,b"),
        (b'{"a": 1}', "application/json", None, '{"a": 1}'),
        (b"<feed/>", "application/atom+xml", None, "<feed/>"),
        (b"broken \xff", "text/plain", "no-such-charset", "broken \ufffd"),
    ],
)
async def test_texts_are_read_as_they_are(body: bytes, mime: str, charset: str | None, text: str) -> None:
    page = await PageReader().read(fetched(body, mime, charset))

    assert (page.text, page.title) == (text, "Annual report.txt")


async def test_of_a_pdf_it_is_known_that_it_exists() -> None:
    page = await PageReader().read(fetched(b"%PDF-1.7", "application/pdf"))

    assert (page.mime, page.text) == ("application/pdf", "")


@pytest.mark.parametrize("mime", ["image/png", "application/zip", "application/octet-stream", "video/mp4"])
async def test_other_types_are_not_read(mime: str) -> None:
    assert not is_text(mime)
    with pytest.raises(Invalid, match=mime):
        await PageReader().read(fetched(b"x", mime))


async def test_the_encoding_that_the_server_names_outweighs_that_of_the_page() -> None:
    text = "<p>Луна притягивает море, и море отвечает приливом дважды в день.</p>" * 5
    html = (
        f'<html><head><meta charset="utf-8"><title>Прилив</title></head><body><article>{text}</article></body></html>'
    )

    page = await PageReader().read(fetched(html.encode("windows-1251"), "text/html", "windows-1251"))

    assert page.title == "Прилив" and "Луна притягивает море" in page.text


@pytest.mark.parametrize("charset", ["rot13", "base64", "no\x00such"])
async def test_an_encoding_that_is_none_of_text_is_not_used(charset: str) -> None:
    assert (await PageReader().read(fetched(b"plain", "text/plain", charset))).text == "plain"


@pytest.mark.parametrize("charset", ["utf-7", "UTF7", "unicode_escape", "raw-unicode-escape", "punycode", "idna"])
async def test_an_encoding_of_names_and_programs_is_not_used_for_a_page(charset: str) -> None:
    page = await PageReader().read(fetched(b"+2AA- \\ud800 a-b9", "text/plain", charset))

    assert page.text == "+2AA- \\ud800 a-b9"


@pytest.mark.parametrize("mime", ["text/plain", "text/html"])
async def test_what_no_database_takes_is_replaced_in_text_and_title(mime: str) -> None:
    whole = f"<html><body><article>{PARAGRAPH * 5}</article></body></html>".encode().replace(b"moon", b"mo\x00on")

    page = await PageReader().read(Fetched("https://a.example/na%00me", mime, None, whole, False))

    assert page.title == "na\ufffdme"
    assert "\x00" not in page.text
