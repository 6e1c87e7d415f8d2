"""Reads a fetched page in a confined process: its title, its text, its date and its links."""

import asyncio
import codecs
import json
import sys
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from chat_proc.tools.web.client import Fetched
from chat_proc.tools.web.page_reader import LIMITS, MAX_LINKS, MAX_TEXT_CHARS
from everturn.confinement.processes import ConfinedProcesses
from everturn.core.errors import Invalid, Unavailable
from everturn.core.urls import MAX_URL_CHARS

PROCESSES = 2
"""Pages that a worker reads concurrently."""
_READER = (sys.executable, "-I", "-m", "chat_proc.tools.web.page_reader")
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_PDF = "application/pdf"
_DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_WHOLE = {_PDF: "PDF", _DOCX: "document"}
"""Types that can't be read in part."""
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript"})
_NOT_FOR_PAGES = frozenset({"idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape", "utf_7"})
"""Encodings of names and of programs: no page uses them, some take minutes or yield lone surrogates."""


@dataclass(frozen=True, slots=True)
class Link:
    """An address in canonical form, and its anchor text, which can be empty."""

    url: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Page:
    """`text` of a PDF has a line `[page n]` before each page; `pages` counts them. `cut` means that there is more."""

    url: str
    mime: str
    title: str
    text: str
    published: str | None
    cut: bool
    links: tuple[Link, ...] = ()
    pages: int | None = None


class PageReader:
    """Reads at most two pages at once; others wait within the caller's time limit."""

    def __init__(self) -> None:
        self._processes = ConfinedProcesses(
            _READER, processes=PROCESSES, limits=LIMITS, purpose="reads pages and files"
        )

    async def read(self, fetched: Fetched) -> Page:
        """Raises Invalid if the page can't be read, Unavailable if it can't be read now."""
        if fetched.cut and (kind := _WHOLE.get(fetched.mime)):
            raise Invalid(f"The {kind} is larger than {len(fetched.body) // 2**20} MiB.")
        charset = fetched.charset if fetched.charset and _knows(fetched.charset) else None
        asked = {"form": _form_of(fetched.mime), "charset": charset, "url": fetched.url}
        result = await self._processes.request(asked, fetched.body)
        if result.ended != "answered":
            took = f"It takes more than {LIMITS.cpu_s:g} s to read." if result.ended == "time" else "It can't be read."
            raise Invalid(took)
        return _build_page(fetched, await asyncio.to_thread(_read_answer, result.answer))

    async def convert(self, mime: str, data: bytes) -> tuple[str, str]:
        """The title and the text of a file that is no page. Raises Invalid if it can't be read, Unavailable."""
        page = await self.read(Fetched("http://file.invalid/", mime, None, data, cut=False))
        return page.title if page.title != "file.invalid" else "", page.text

    async def close(self) -> None:
        await self._processes.close()


def is_readable_text(mime: str) -> bool:
    """Whether a page of this type is shown as it is, without being parsed."""
    return mime.startswith("text/") or mime in _TEXTS or mime.endswith(("+json", "+xml"))


def _form_of(mime: str) -> str:
    if mime in _HTML:
        return "html"
    if mime == _PDF:
        return "pdf"
    if mime == _DOCX:
        return "docx"
    if is_readable_text(mime):
        return "text"
    raise Invalid(f"Its type {mime} is not supported; text, HTML, JSON, PDF and DOCX are.")


def _read_answer(answer: bytes) -> dict[str, Any]:
    """Parse the answer of a process that a page may have compromised: nothing in it is trusted, and its form is
    checked."""
    try:
        found: object = json.loads(answer)
    except ValueError as error:
        raise Unavailable("The page can't be read.") from error
    if not isinstance(found, dict):
        raise Unavailable("The page can't be read.")
    fields = cast("dict[str, Any]", found)
    if refused := _text(fields, "refused", 200):
        raise Invalid(refused)
    return fields


def _build_page(fetched: Fetched, found: dict[str, Any]) -> Page:
    links: Any = found.get("links")
    pages: Any = found.get("pages")
    return Page(
        url=fetched.url,
        mime=fetched.mime,
        title=_text(found, "title", 300) or _name_of(fetched.url),
        text=_text(found, "text", MAX_TEXT_CHARS),
        published=_text(found, "published", 40) or None,
        cut=fetched.cut or found.get("cut") is True,
        links=tuple(_read_links(cast("list[object]", links)[:MAX_LINKS])) if isinstance(links, list) else (),
        pages=pages if isinstance(pages, int) else None,
    )


def _read_links(links: list[object]) -> list[Link]:
    pairs = [cast("list[object]", link) for link in links if isinstance(link, list)]
    return [
        Link(url, anchor)
        for url, anchor in (pair for pair in pairs if len(pair) == 2)
        if isinstance(url, str) and isinstance(anchor, str) and url.isascii() and len(url) <= MAX_URL_CHARS
    ]


def _text(found: dict[str, Any], name: str, max_chars: int) -> str:
    value = found.get(name)
    return value[:max_chars].replace("\x00", "\ufffd") if isinstance(value, str) else ""


def _knows(charset: str) -> bool:
    try:
        b"ab".decode(charset, errors="replace")
        return codecs.lookup(charset).name.replace("-", "_") not in _NOT_FOR_PAGES
    except (LookupError, ValueError):
        return False


def _name_of(url: str) -> str:
    parts = urlsplit(url)
    return (unquote(PurePosixPath(parts.path).name) or parts.netloc).replace("\x00", "\ufffd")
