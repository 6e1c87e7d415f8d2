from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from uploads.pdfs import pdf_of_texts

from chat_proc.tools.web.client import Fetched
from chat_proc.tools.web.page_reader import MAX_HTML_BYTES, MAX_LINKS, MAX_PDF_PAGES
from chat_proc.tools.web.pages import PageReader, is_readable_text
from everturn.core.errors import Invalid

pytestmark = pytest.mark.asyncio(loop_scope="module")

URL = "https://a.example/files/Annual%20report.txt?x=1"
PARAGRAPH = "<p>The moon pulls at the sea, and the sea answers twice a day with a tide of its own.</p>"


def fetched(body: bytes, mime: str, charset: str | None = None, *, cut: bool = False) -> Fetched:
    return Fetched(URL, mime, charset, body, cut)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader() -> AsyncIterator[PageReader]:
    reader = PageReader()
    yield reader
    await reader.close()


async def test_html_is_read_as_text(reader: PageReader) -> None:
    html = f"<html><head><title>Tides</title></head><body><article>{PARAGRAPH * 5}</article></body></html>"

    page = await reader.read(fetched(html.encode(), "text/html"))

    assert page.title == "Tides" and "The moon pulls" in page.text and not page.cut


async def test_a_page_without_a_title_is_named_after_its_address(reader: PageReader) -> None:
    page = await reader.read(fetched(b"<html></html>", "text/html"))

    assert (page.title, page.text) == ("Annual report.txt", "")


async def test_very_long_html_is_cut_before_it_is_read(reader: PageReader) -> None:
    html = b"<html><body><article>" + PARAGRAPH.encode() * 20 + b"<!--" + b"x" * MAX_HTML_BYTES

    page = await reader.read(fetched(html, "text/html"))

    assert page.cut and "The moon pulls" in page.text


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
async def test_texts_are_read_as_they_are(
    reader: PageReader, body: bytes, mime: str, charset: str | None, text: str
) -> None:
    page = await reader.read(fetched(body, mime, charset))

    assert (page.text, page.title) == (text, "Annual report.txt")


async def test_a_pdf_is_read_page_by_page(reader: PageReader) -> None:
    pdf = pdf_of_texts("The tide comes twice.", "The moon pulls.", link="https://b.example/tides#top")

    page = await reader.read(fetched(pdf, "application/pdf"))

    assert page.text == "[page 1]\nThe tide comes twice.\n\n[page 2]\nThe moon pulls."
    assert (page.pages, page.cut, page.title) == (2, False, "Annual report.txt")
    assert [link.url for link in page.links] == ["https://b.example/tides"]


async def test_a_long_pdf_is_read_up_to_its_last_page_that_counts(reader: PageReader) -> None:
    page = await reader.read(fetched(pdf_of_texts(*["x"] * (MAX_PDF_PAGES + 1)), "application/pdf"))

    assert page.cut and page.text.endswith(f"[page {MAX_PDF_PAGES}]\nx")


@pytest.mark.parametrize(
    ("pdf", "why"),
    [(b"%PDF-1.7", "damaged"), (b"no pdf", "damaged"), (pdf_of_texts("x", password="p"), "encrypted")],
)
async def test_an_unreadable_pdf_is_reported(reader: PageReader, pdf: bytes, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        await reader.read(fetched(pdf, "application/pdf"))


async def test_a_pdf_of_which_the_end_is_missing_is_not_read(reader: PageReader) -> None:
    with pytest.raises(Invalid, match="is larger than"):
        await reader.read(fetched(b"%PDF-1.7", "application/pdf", cut=True))


async def test_links_are_absolute_and_those_of_the_content_come_first(reader: PageReader) -> None:
    html = (
        "<html><body><nav><a href='/menu'>Menu</a></nav><main><p><a href='b?x=1#part'>To  b</a>"
        "<a href='javascript:alert(1)'>js</a><a href='mailto:a@b.example'>mail</a>"
        f"<a href='https://user:pw@c.example/'>pw</a><a href='/{'x' * 3000}'>long</a></p></main></body></html>"
    )

    page = await reader.read(fetched(html.encode(), "text/html"))

    assert [(link.url, link.anchor) for link in page.links] == [
        ("https://a.example/files/b?x=1", "To b"), ("https://a.example/menu", "Menu"),
    ]  # fmt: skip


async def test_of_many_links_some_are_kept(reader: PageReader) -> None:
    html = "".join(f"<p><a href='/{n}'>{n}</a></p>" for n in range(5000))

    page = await reader.read(fetched(html.encode(), "text/html"))

    assert len(page.links) == MAX_LINKS


@pytest.mark.parametrize("mime", ["image/png", "application/zip", "application/octet-stream", "video/mp4"])
async def test_other_types_are_not_read(reader: PageReader, mime: str) -> None:
    assert not is_readable_text(mime)
    with pytest.raises(Invalid, match=mime):
        await reader.read(fetched(b"x", mime))


async def test_the_encoding_that_the_server_names_outweighs_that_of_the_page(reader: PageReader) -> None:
    text = "<p>Луна притягивает море, и море отвечает приливом дважды в день.</p>" * 5
    html = (
        f'<html><head><meta charset="utf-8"><title>Прилив</title></head><body><article>{text}</article></body></html>'
    )

    page = await reader.read(fetched(html.encode("windows-1251"), "text/html", "windows-1251"))

    assert page.title == "Прилив" and "Луна притягивает море" in page.text


@pytest.mark.parametrize("charset", ["rot13", "base64", "no\x00such"])
async def test_an_encoding_that_is_none_of_text_is_not_used(reader: PageReader, charset: str) -> None:
    assert (await reader.read(fetched(b"plain", "text/plain", charset))).text == "plain"


@pytest.mark.parametrize("charset", ["utf-7", "UTF7", "unicode_escape", "raw-unicode-escape", "punycode", "idna"])
async def test_an_encoding_of_names_and_programs_is_not_used_for_a_page(reader: PageReader, charset: str) -> None:
    page = await reader.read(fetched(b"+2AA- \\ud800 a-b9", "text/plain", charset))

    assert page.text == "+2AA- \\ud800 a-b9"


@pytest.mark.parametrize("mime", ["text/plain", "text/html"])
async def test_what_no_database_takes_is_replaced_in_text_and_title(reader: PageReader, mime: str) -> None:
    whole = f"<html><body><article>{PARAGRAPH * 5}</article></body></html>".encode().replace(b"moon", b"mo\x00on")

    page = await reader.read(Fetched("https://a.example/na%00me", mime, None, whole, False))

    assert page.title == "na\ufffdme"
    assert "\x00" not in page.text
