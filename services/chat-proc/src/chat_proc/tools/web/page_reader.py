"""The program that reads pages, `python -I -m chat_proc.tools.web.page_reader`: one confined fork for each page.

It parses untrusted content, so a fork can only compute and answer.
"""

import io
import json
import logging
import sys
import time
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urljoin

import docx
import pypdf
import trafilatura
from docx.opc.exceptions import OpcError
from docx.table import Table
from pypdf.errors import PyPdfError

from everturn.confinement.fork import ForkLimits, hide_process, preload_encodings
from everturn.confinement.processes import run_answering
from everturn.core.errors import Invalid
from everturn.core.storable import replace_unstorable
from everturn.core.urls import MAX_URL_CHARS, canonical_url, find_written_urls

LIMITS = ForkLimits(memory_bytes=512 * 1024 * 1024, cpu_s=12.0, wall_s=25.0, answer_bytes=2 * 1024 * 1024)
MAX_TEXT_CHARS = 200_000
"""The limit of a source's text."""
MAX_LINKS = 200
"""Limit of one page; each is an address that can be read without approval."""
MAX_LINKS_CHARS = 32_000
MAX_ANCHOR_CHARS = 80
MAX_HTML_BYTES = 3 * 1024 * 1024
MAX_PDF_PAGES = 200
PDF_CPU_S = 8.0
"""CPU time after which the rest of a PDF is dropped; well within the limit of the fork."""
_CONTENT = ".//main//a[@href] | .//article//a[@href] | .//p//a[@href] | .//td//a[@href]"
_SAMPLE = b"<html><head><title>A</title></head><body><article><p>A page with enough words to be taken for its text.</p>"

Answer = dict[str, Any]


def read_page(fields: Mapping[str, Any], data: bytes) -> bytes:
    """JSON with `title`, `text`, `published`, `cut` and `links` ([address, anchor] pairs), or with `refused`: the
    reason why a page of this form can't be read."""
    try:
        answer = _READERS[fields["form"]](fields, data)
    except Invalid as refused:
        answer = {"refused": refused.detail}
    except MemoryError:
        answer = {"refused": f"Reading it takes more than {LIMITS.memory_bytes // 2**20} MiB of memory."}
    return json.dumps(answer, ensure_ascii=False).encode("utf-8", errors="replace")


def read_html(fields: Mapping[str, Any], data: bytes) -> Answer:
    """The main text as Markdown. The server's encoding takes precedence over the page's own declaration."""
    html = data[:MAX_HTML_BYTES]
    if fields["charset"]:
        html = html.decode(fields["charset"], errors="replace").encode("utf-8", errors="replace")
    tree: Any = trafilatura.load_html(html)
    if tree is None:
        return _answer("", "", None, cut=len(data) > MAX_HTML_BYTES, links=())
    links = _find_links(tree, fields["url"])
    extracted = trafilatura.extract(
        tree,
        url=fields["url"],
        output_format="json",
        with_metadata=True,
        include_comments=False,
        include_formatting=True,
        date_extraction_params={"extensive_search": False, "original_date": True},
    )
    found: dict[str, str | None] = json.loads(extracted or "{}")
    text = found.get("text") or ""
    return _answer(found.get("title") or "", text, found.get("date"), cut=len(data) > MAX_HTML_BYTES, links=links)


def read_text(fields: Mapping[str, Any], data: bytes) -> Answer:
    """The unchanged text; its links are the addresses written in it."""
    text = data.decode(fields["charset"] or "utf-8-sig", errors="replace")
    return _answer("", text, None, cut=False, links=[(url, "") for url in sorted(find_written_urls(text))])


def read_pdf(fields: Mapping[str, Any], data: bytes) -> Answer:
    """The text of its pages, each after a line `[page n]`."""
    try:
        pdf = pypdf.PdfReader(io.BytesIO(data))
        if pdf.is_encrypted:
            raise Invalid("The PDF is encrypted.")
        title, pages = str(pdf.metadata.title or "") if pdf.metadata else "", len(pdf.pages)
        texts: list[str] = []
        links: list[tuple[str, str]] = []
        chars, began = 0, time.process_time()
        for number, page in enumerate(pdf.pages, start=1):
            late = time.process_time() - began > PDF_CPU_S
            if number > MAX_PDF_PAGES or chars > MAX_TEXT_CHARS or late:
                break
            texts.append(f"[page {number}]\n{page.extract_text().strip()}")
            links += _find_pdf_links(page, fields["url"])
            chars += len(texts[-1])
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid("The PDF is damaged.") from error
    text = "\n\n".join(texts)
    links += [(url, "") for url in sorted(find_written_urls(text))]
    return {**_answer(title, text, None, cut=len(texts) < pages, links=links), "pages": pages}


def read_docx(fields: Mapping[str, Any], data: bytes) -> Answer:
    """The paragraphs as Markdown: headings, and tables with a line for each row."""
    try:
        document: Any = docx.Document(io.BytesIO(data))
        title = str(document.core_properties.title or "")
        texts: list[str] = []
        chars = 0
        for part in document.iter_inner_content():
            if chars > MAX_TEXT_CHARS:
                break
            texts.append(_render_table(part) if isinstance(part, Table) else _render_paragraph(part))
            chars += len(texts[-1])
    except (OpcError, zipfile.BadZipFile, SyntaxError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise Invalid("The document is damaged.") from error
    text = "\n\n".join(text for text in texts if text)
    return _answer(title, text, None, cut=False, links=[(url, "") for url in sorted(find_written_urls(text))])


def _render_paragraph(paragraph: Any) -> str:
    text, style = paragraph.text.strip(), str(paragraph.style.name)
    level = style.removeprefix("Heading ")
    if text and (style == "Title" or (level != style and level.isdigit())):
        return f"{'#' * min(6, 1 if style == 'Title' else int(level))} {text}"
    return text


def _render_table(table: Any) -> str:
    rows = ([" ".join(cell.text.split()) for cell in row.cells] for row in table.rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


_READERS = {"html": read_html, "text": read_text, "pdf": read_pdf, "docx": read_docx}


def _answer(title: str, text: str, published: str | None, *, cut: bool, links: Iterable[tuple[str, str]]) -> Answer:
    return {
        "title": replace_unstorable(" ".join(title.split())[:300]),
        "text": replace_unstorable(text[:MAX_TEXT_CHARS]),
        "published": published and replace_unstorable(published)[:40],
        "cut": cut or len(text) > MAX_TEXT_CHARS,
        "links": _choose_links(links),
    }


def _find_links(tree: Any, url: str) -> list[tuple[str, str]]:
    """The links, those of the content first: a page begins with its menus, and not all links are kept."""
    base = _join(url, str(tree.xpath("string(.//base/@href)"))) or url
    found: list[Any] = [*tree.xpath(_CONTENT), *tree.xpath(".//a[@href] | .//area[@href]")]
    links: dict[Any, tuple[str, str]] = {}
    for element in found[: 20 * MAX_LINKS]:
        if element not in links and (target := _join(base, str(element.get("href")))):
            links[element] = target, " ".join(str(element.text_content())[:1000].split())[:MAX_ANCHOR_CHARS]
    return list(links.values())


def _find_pdf_links(page: Any, url: str) -> list[tuple[str, str]]:
    targets: list[str] = []
    for annotation in list(page.get("/Annots") or ())[:MAX_LINKS]:
        action: Any = annotation.get_object().get("/A")
        target: Any = action.get_object().get("/URI") if action is not None else None
        if target is not None:
            targets.append(str(target))
    return [(joined, "") for target in targets if (joined := _join(url, target))]


def _join(base: str, href: str) -> str | None:
    """The canonical address of a link; None if it is not to be fetched."""
    if not href or len(href) > MAX_URL_CHARS:
        return None
    try:
        return canonical_url(urljoin(base, href.strip()))
    except (Invalid, ValueError):
        return None


def _choose_links(links: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    chosen: dict[str, str] = {}
    chars = 0
    for address, anchor in links:
        if len(chosen) >= MAX_LINKS or chars + len(address) > MAX_LINKS_CHARS:
            break
        if address not in chosen:
            chars += len(address)
        chosen[address] = chosen.get(address) or replace_unstorable(anchor)
    return list(chosen.items())


def preload() -> None:
    """Load the modules and lists for reading pages, because a fork can't open them."""
    preload_encodings()
    html = {"charset": "utf-8", "url": "http://a.example/", "form": "html"}
    read_page(html, _SAMPLE + b"<p><a href=b>b</a>, first published on 3 May 2019.</p>" * 20)
    read_page(html, b"<html><body>short</body></html>")
    blank = io.BytesIO()
    writer = pypdf.PdfWriter()
    writer.add_blank_page(72, 72)
    writer.write(blank)
    read_page({**html, "form": "pdf"}, blank.getvalue())
    read_page({**html, "form": "text"}, "http://\u00fc.example/".encode())
    written = io.BytesIO()
    sample: Any = docx.Document()
    sample.add_heading("A")
    sample.add_table(rows=1, cols=1)
    sample.save(written)
    read_page({**html, "form": "docx"}, written.getvalue())


def main() -> None:
    """Answer until the input ends."""
    hide_process()
    logging.disable(logging.CRITICAL)
    preload()
    run_answering(sys.stdin.buffer, sys.stdout.buffer, read_page, LIMITS)


if __name__ == "__main__":
    main()
