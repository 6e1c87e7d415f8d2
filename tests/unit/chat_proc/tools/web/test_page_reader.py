import io
from typing import Any

import docx
import pytest
from uploads.zips import Member, build_zip

from chat_proc.tools.web.page_reader import Answer, read_docx, read_html
from everturn.core.errors import Invalid

PARAGRAPHS = "".join(
    f"<p>Paragraph {n}: the moon pulls at the sea, and the sea answers twice a day with a tide.</p>" for n in range(8)
)
ARTICLE = f"""<html><head><title>Tides &amp; moons</title><meta property="article:published_time" content="2026-02-03">
</head><body><nav>Home | Shop | Login</nav><article><h1>Tides and moons</h1>{PARAGRAPHS}</article>
<footer>All rights reserved</footer><script>alert("x")</script></body></html>"""


def read(html: bytes) -> Answer:
    return read_html({"charset": None, "url": "https://a.example/tides"}, html)


def test_only_the_text_of_an_article_is_extracted() -> None:
    page = read(ARTICLE.encode())

    assert "Paragraph 7: the moon pulls" in page["text"]
    assert "Login" not in page["text"] and "alert" not in page["text"]
    assert page["title"] in {"Tides & moons", "Tides and moons"}
    assert page["published"].startswith("2026-02-03")


def test_a_page_without_text_is_empty() -> None:
    assert read(b"<html></html>")["text"] == ""


def test_bytes_that_are_no_page_are_empty() -> None:
    assert read(b"\x00\xff\xfe")["text"] == ""


def test_a_document_of_word_becomes_markdown() -> None:
    document: Any = docx.Document()
    document.core_properties.title = "Refunds"
    document.add_heading("Refunds", 0)
    document.add_heading("Limits", 2)
    document.add_paragraph("A refund takes nine days.")
    table = document.add_table(rows=1, cols=2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "days", "9"
    written = io.BytesIO()
    document.save(written)

    page = read_docx({}, written.getvalue())

    assert page["title"] == "Refunds"
    assert page["text"] == "# Refunds\n\n## Limits\n\nA refund takes nine days.\n\n| days | 9 |"


@pytest.mark.parametrize(
    "data",
    [b"", b"PK", b"no archive", build_zip([Member("word/document.xml", b"<x>")])],
    ids=["empty", "cut", "text", "parts"],
)
def test_a_damaged_document_of_word_is_refused(data: bytes) -> None:
    with pytest.raises(Invalid, match="damaged"):
        read_docx({}, data)
