"""`web_tools.web_fetch`: reads pages of the public internet into the source pool."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import islice
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.catalog.tool import ToolCall, ToolOutcome, ToolSpec
from chat_proc.tools.web.client import WebClient
from chat_proc.tools.web.pages import Link, Page, PageReader
from everturn.core.errors import EverturnError
from everturn.core.ids import TurnId
from everturn.core.refs import sources_ref
from everturn.core.urls import MAX_URL_CHARS
from everturn.timeline.inert import escape_line, escape_name
from everturn.timeline.seen_urls import build_address_data
from everturn.timeline.sources import MAX_TEXT_CHARS, Source, SourceDraft
from everturn.turns.model import Effect

MAX_URLS = 5
MAX_SHOWN_CHARS = 10_000
"""Limit of all pages of one call together."""
MAX_VALUE_CHARS = 100_000
"""Limit of one page, for a program; the source has the whole text."""
MAX_SHOWN_LINKS = 40
"""Limit of all pages of one call together; other links can be read too, if a message names them."""
MAX_SHOWN_LINK_CHARS = 300
"""A longer address is not shown."""
RESULT_CHARS = MAX_SHOWN_CHARS + 18_000
"""Including the heads of the pages, and the links."""
TIMEOUT_S = 60.0
VALUE_KEYS = ("url", "sid", "title", "published", "mime", "text", "links", "cut", "error")
"""Of a page as a program gets it. A page that was not read has an `error` and an empty text."""


class WebFetchParams(BaseModel):
    """The pages to read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    urls: list[Annotated[str, Field(max_length=MAX_URL_CHARS)]] = Field(min_length=1, max_length=MAX_URLS)


class WebFetchTool:
    """Reads all pages that can be fetched, and reports the others."""

    def __init__(self, client: WebClient, reader: PageReader, *, in_programs: bool = False) -> None:
        self._client = client
        self._reader = reader
        self.spec = ToolSpec(
            tool_id="web_tools.web_fetch",
            summary="Read web pages by address; their text goes into the source pool.",
            guide=files("chat_proc.tools.web").joinpath("web_fetch.md").read_text(encoding="utf-8"),
            params=WebFetchParams,
            effect=Effect.PURE,
            strategy="exploration",
            timeout_s=TIMEOUT_S,
            result_chars=RESULT_CHARS,
            in_programs=in_programs,
            returns=f"a list of {{{', '.join(VALUE_KEYS)}}}, one for each address",
            untrusted=True,
            addresses=("urls",),
        )

    def limit_to(self, hosts: Sequence[str]) -> "WebFetchTool":
        """The same tool for pages of these hosts only, which its guide names."""
        limited = WebFetchTool(self._client.limit_to(hosts), self._reader, in_programs=self.spec.in_programs)
        guide = f"{self.spec.guide.rstrip()} You can read pages of these hosts only: {', '.join(hosts)}."
        limited.spec = replace(self.spec, guide=guide, only_hosts=tuple(hosts))
        return limited

    async def run(self, call: ToolCall) -> ToolOutcome:
        urls = list(dict.fromkeys(WebFetchParams.model_validate(call.params).urls))
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(self._try_read(url, call.context.turn_id)) for url in urls]
        results = [task.result() for task in reading]
        pages = [page for page in results if isinstance(page, Page)]
        try:
            claimed = call.context.pool.claim([_draft(page) for page in pages])
        except EverturnError as error:
            return ToolOutcome("error", f"Nothing was saved: {error.detail}")
        rows, cap = iter(claimed), MAX_SHOWN_CHARS // max(1, len(pages))
        texts = [
            _render(next(rows), result, cap) if isinstance(result, Page) else f"{escape_name(url)}: not read. {result}"
            for url, result in zip(urls, results, strict=True)
        ]
        sids = iter(row.sid for row in claimed)
        value = [
            _value(url, result, next(sids) if isinstance(result, Page) else None)
            for url, result in zip(urls, results, strict=True)
        ]
        found = [address for page in pages for address in (page.url, *(link.url for link in page.links))]
        if links := _render_links([link for page in pages for link in page.links]):
            texts.append(links)
        return ToolOutcome(
            "ok" if pages else "error",
            "\n\n".join(texts),
            data=build_address_data(found) or None,
            value=value,
            untrusted=bool(pages),
        )

    async def _try_read(self, url: str, turn_id: TurnId) -> Page | str:
        """The page, or the reason for failure as a sentence."""
        try:
            return await self._reader.read(await self._client.fetch(url, turn_id))
        except EverturnError as error:
            return error.detail or str(error)


def _draft(page: Page) -> SourceDraft:
    return SourceDraft(page.title, page.url, published_time_iso=page.published, text=page.text, mime=page.mime)


def _value(url: str, result: Page | str, sid: int | None) -> dict[str, Any]:
    if isinstance(result, str):
        return {**dict.fromkeys(VALUE_KEYS), "url": url, "text": "", "links": [], "cut": False, "error": result}
    return {
        "url": result.url,
        "sid": sid,
        "title": result.title,
        "published": result.published,
        "mime": result.mime,
        "text": result.text[:MAX_VALUE_CHARS],
        "links": [{"url": link.url, "text": link.anchor} for link in result.links],
        "cut": result.cut or len(result.text) > MAX_VALUE_CHARS,
        "error": None,
    }


def _render(row: Source, page: Page, cap: int) -> str:
    facts = [page.mime, f"{len(page.text)} characters"]
    facts += [f"{page.pages} pages"] if page.pages is not None else []
    facts += [f"published {escape_line(page.published)}"] if page.published else []
    facts += ["the page is longer, but was cut"] if page.cut or len(page.text) > MAX_TEXT_CHARS else []
    head = f"[[S:{row.sid}]] {escape_line(row.title)}\n{escape_name(page.url)} ({', '.join(facts)})"
    if not page.text.strip():
        return f"{head}\nIt has no readable text."
    ref = sources_ref([row.sid])
    if len(page.text) <= cap:
        return f"{head}\n---\n{page.text}\n--- the whole text; to read it again: {ref}"
    return f"{head}\n---\n{page.text[:cap]}\n--- characters [0-{cap}]/{len(page.text)}; to read the rest: {ref}"


def _render_links(links: list[Link]) -> str:
    """The first links, each address once."""
    anchors: dict[str, str] = {}
    for link in links:
        if len(link.url) <= MAX_SHOWN_LINK_CHARS:
            anchors.setdefault(link.url, link.anchor)
    lines = [
        f"- {escape_line(anchor)}: {escape_line(url)}" if anchor else f"- {escape_line(url)}"
        for url, anchor in islice(anchors.items(), MAX_SHOWN_LINKS)
    ]
    return "\n".join(["--- links of what was read; use their addresses unchanged ---", *lines]) if lines else ""
