"""`web_tools.web_search`: asks a search provider; what it finds becomes sources."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field

from everturn.errors import EverturnError, Invalid, Unavailable
from everturn.model.commits import Effect
from everturn.model.llm.source_pool import SourceDraft
from everturn.model.llm.sources import Source
from everturn.model.web_addresses import try_canonical_url
from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec
from everturn.timeline.inert import escape_line
from everturn.timeline.seen_addresses import build_address_data
from everturn.tools.web.providers import SearchProvider

MAX_RESULTS = 10
MAX_QUERY_CHARS = 256
"""A search is a few words; a query leaves the platform, so it is no way to send more."""
MAX_SNIPPET_CHARS = 1_000


class WebSearchParams(BaseModel):
    """What to look for, and how many pages at most."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str = Field(min_length=1, max_length=MAX_QUERY_CHARS)
    n: int = Field(default=5, ge=1, le=MAX_RESULTS)


class WebSearchTool:
    """Asks the first provider; the next one when that fails."""

    def __init__(self, providers: Sequence[SearchProvider], *, in_programs: bool = False) -> None:
        if not providers:
            raise Invalid("web_search needs a provider.")
        self._providers = tuple(providers)
        self.spec = ToolSpec(
            tool_id="web_tools.web_search",
            summary="Search the web; the pages found become sources.",
            guide=files("everturn.tools.web").joinpath("web_search.md").read_text(encoding="utf-8"),
            params=WebSearchParams,
            effect=Effect.PURE,
            strategy="exploration",
            in_programs=in_programs,
            returns="a list of {sid, title, url, published, text}, the best first",
            untrusted=True,
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = WebSearchParams.model_validate(call.params)
        failure = Unavailable()
        for provider in self._providers:
            try:
                found = await provider.search(params.query, params.n)
            except Unavailable as error:
                failure = error
                continue
            return _claim(call, params.query, await asyncio.to_thread(_keep_readable, found))
        return ToolOutcome("error", failure.detail)


def _claim(call: ToolCall, query: str, found: Sequence[SourceDraft]) -> ToolOutcome:
    if not found:
        return ToolOutcome("ok", "Nothing was found. Try other words.", value=[])
    try:
        rows = call.context.pool.claim(found)
    except EverturnError as error:
        return ToolOutcome("error", f"Nothing was kept: {error.detail}")
    value = [_value(row, draft) for row, draft in zip(rows, found, strict=True)]
    text = "\n\n".join(map(_render, rows, found))
    data = build_address_data([draft.url for draft in found if not _is_written(draft.url, query)])
    return ToolOutcome("ok", text, data=data, value=value, untrusted=True)


def _is_written(url: str, query: str) -> bool:
    """Whether the query wrote this address itself. Engines give such an address back; that does not make it seen."""
    address = unquote(url).partition("://")[2].rstrip("/").casefold()
    return address in unquote(query).casefold()


def _keep_readable(found: Sequence[SourceDraft]) -> list[SourceDraft]:
    """Those with an address that can be fetched, in the form in which it is requested."""
    addresses = [(draft, try_canonical_url(draft.url)) for draft in found[:MAX_RESULTS]]
    return [replace(draft, url=url) for draft, url in addresses if url is not None]


def _value(row: Source, draft: SourceDraft) -> dict[str, Any]:
    return {
        "sid": row.sid,
        "title": row.title,
        "url": draft.url,
        "published": row.published_time_iso,
        "text": draft.text[:MAX_SNIPPET_CHARS],
    }


def _render(row: Source, draft: SourceDraft) -> str:
    dated = f" ({escape_line(row.published_time_iso)})" if row.published_time_iso else ""
    snippet = " ".join(draft.text.split())[:MAX_SNIPPET_CHARS]
    return f"[[S:{row.sid}]] {escape_line(row.title)}{dated}\n{escape_line(draft.url)}\n{snippet}"
