"""What a fetched page says: its title, its text and its date. HTML is read by a child process under limits."""

import asyncio
import codecs
import json
import re
import sys
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from everturn.errors import Invalid, Unavailable
from everturn.tools.web.client import Fetched

MAX_HTML_BYTES = 3 * 1024 * 1024
MAX_CHILDREN = 2
EXTRACT_TIMEOUT_S = 15.0
_EXTRACTION = "everturn.tools.web.extraction"
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript"})
_NOT_FOR_PAGES = frozenset({"idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape", "utf_7"})
"""Encodings of names and of programs: no page is written in them, some take minutes or give halves of characters."""
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Page:
    """`text` is empty for a PDF, of which only that it exists is known."""

    url: str
    mime: str
    title: str
    text: str
    published: str | None
    cut: bool


class PageReader:
    """Reads at most two HTML pages at once; more wait their turn within the caller's limit."""

    def __init__(self, *, timeout_s: float = EXTRACT_TIMEOUT_S) -> None:
        self._children = asyncio.Semaphore(MAX_CHILDREN)
        self._timeout_s = timeout_s

    async def read(self, fetched: Fetched) -> Page:
        """Raises Invalid for a type that is no text, Unavailable when a page can't be read."""
        if fetched.mime in _HTML:
            return await self._read_html(fetched)
        if fetched.mime == "application/pdf":
            return _build_page(fetched, "")
        if not is_text(fetched.mime):
            raise Invalid(f"It is {fetched.mime}, which is not read; text, HTML, JSON and PDF are.")
        return _build_page(fetched, _decode(fetched))

    async def _read_html(self, fetched: Fetched) -> Page:
        html = fetched.body[:MAX_HTML_BYTES]
        if fetched.charset and _knows(fetched.charset):
            # What the server says of the encoding outweighs what the page says of itself.
            html = html.decode(fetched.charset, errors="replace").encode("utf-8", errors="replace")
        async with self._children:
            told = await self._extract(html, fetched.url)
        return Page(
            url=fetched.url,
            mime=fetched.mime,
            title=_clean(told.get("title") or _name_of(fetched.url)),
            text=_clean(told.get("text", "")),
            published=told.get("published") or None,
            cut=fetched.cut or len(fetched.body) > MAX_HTML_BYTES,
        )

    async def _extract(self, html: bytes, url: str) -> dict[str, str]:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-m", _EXTRACTION, url,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env={},
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._timeout_s):
                answer, _ = await child.communicate(html)
        except TimeoutError as error:
            raise Unavailable(f"Reading the page took more than {self._timeout_s:g} s.") from error
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode != 0:
            raise Unavailable("The page can't be read as HTML.")
        return _read_answer(answer)


def _read_answer(answer: bytes) -> dict[str, str]:
    try:
        return json.loads(answer)
    except ValueError as error:
        raise Unavailable("The page can't be read as HTML.") from error


def is_text(mime: str) -> bool:
    """Whether a page of this type reads as text."""
    return mime.startswith("text/") or mime in _TEXTS or mime.endswith(("+json", "+xml"))


def _build_page(fetched: Fetched, text: str) -> Page:
    return Page(fetched.url, fetched.mime, _clean(_name_of(fetched.url)), _clean(text), None, fetched.cut)


def _decode(fetched: Fetched) -> str:
    charset = fetched.charset if fetched.charset and _knows(fetched.charset) else "utf-8-sig"
    return fetched.body.decode(charset, errors="replace")


def _knows(charset: str) -> bool:
    try:
        b"ab".decode(charset, errors="replace")
        return codecs.lookup(charset).name.replace("-", "_") not in _NOT_FOR_PAGES
    except (LookupError, ValueError):
        return False


def _clean(text: str) -> str:
    """What a database and a wire take: a page may hold any character."""
    return _UNSTORABLE.sub("\ufffd", text)


def _name_of(url: str) -> str:
    parts = urlsplit(url)
    return unquote(PurePosixPath(parts.path).name) or parts.netloc
