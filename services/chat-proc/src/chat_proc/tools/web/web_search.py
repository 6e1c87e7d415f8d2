"""`web_tools.web_search`: queries a search provider and adds its results to the source pool."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, Protocol, cast
from urllib.parse import unquote, urlencode

import httpcore2
from pydantic import BaseModel, ConfigDict, Field

from chat_proc.catalog.tool import ToolCall, ToolOutcome, ToolSpec
from everturn.core.errors import EverturnError, Invalid, Unavailable
from everturn.core.urls import try_canonical_url
from everturn.timeline.inert import escape_line
from everturn.timeline.seen_urls import build_address_data
from everturn.timeline.sources import Source, SourceDraft
from everturn.turns.model import Effect

MAX_ANSWER_BYTES = 2 * 1024 * 1024
TIMEOUT_S = 15.0
_STEP_TIMEOUTS = {"connect": 5.0, "read": 10.0, "write": 5.0, "pool": 5.0}

BRAVE_URL = "https://api.search.brave.com/res/v1/web/search"
MAX_FIELD_CHARS = 20_000
"""Limit of a provider's fields for one page. A longer address is refused."""
TAVILY_URL = "https://api.tavily.com/search"

MAX_RESULTS = 10
MAX_QUERY_CHARS = 256
"""A search is a few words; a query leaves the platform, so it must not carry more."""
MAX_SNIPPET_CHARS = 1_000


async def request_json(
    method: str, url: str, *, headers: Mapping[str, str], body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the JSON object of the response. Raises Unavailable with a sentence that contains nothing of the
    headers."""
    content = None if body is None else json.dumps(body).encode()
    sent: dict[bytes | str, bytes | str] = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
    if content is not None:
        sent["Content-Type"] = "application/json"
    try:
        async with asyncio.timeout(TIMEOUT_S), httpcore2.AsyncConnectionPool(max_connections=1) as pool:
            options = {"timeout": _STEP_TIMEOUTS}
            async with pool.stream(method, url, headers=sent, content=content, extensions=options) as response:
                if response.status != 200:
                    raise Unavailable(_refusal(response.status))
                return await asyncio.to_thread(_read_object, await _read(response))
    except TimeoutError as error:
        raise Unavailable(f"The search provider did not answer within {TIMEOUT_S:g} s.") from error
    except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
        raise Unavailable(f"The search provider can't be reached ({type(error).__name__}).") from error


async def _read(response: httpcore2.Response) -> bytes:
    answer = bytearray()
    async for chunk in response.aiter_stream():
        answer += chunk
        if len(answer) > MAX_ANSWER_BYTES:
            raise Unavailable(f"The search provider returned more than {MAX_ANSWER_BYTES} bytes.")
    return bytes(answer)


def _read_object(answer: bytes) -> dict[str, Any]:
    try:
        value: object = json.loads(answer)
    except ValueError as error:
        raise Unavailable("The search provider did not return JSON.") from error
    if not isinstance(value, dict):
        raise Unavailable("The search provider did not return a JSON object.")
    return cast("dict[str, Any]", value)


def _refusal(status: int) -> str:
    if status in (401, 403):
        return "The search provider rejected the API key; an operator has to set a valid one."
    if status == 429:
        return "The search provider's rate limit is reached. Try again later, or read known addresses."
    return f"The search provider answered with status {status}."


class SearchProvider(Protocol):
    """Finds pages."""

    @property
    def name(self) -> str: ...

    async def search(self, query: str, count: int) -> Sequence[SourceDraft]:
        """Results, best first; `text` is the provider's excerpt of the page. Raises Unavailable."""
        ...


class BraveSearch:
    """Brave Search, by the key BRAVE_API_KEY."""

    name = "brave"

    def __init__(self, key: str, *, url: str = BRAVE_URL) -> None:
        self._key = key
        self._url = url

    async def search(self, query: str, count: int) -> Sequence[SourceDraft]:
        asked = urlencode({"q": query, "count": count, "text_decorations": "false"})
        answer = await request_json("GET", f"{self._url}?{asked}", headers={"X-Subscription-Token": self._key})
        results = _rows(_field(answer, "web"), "results")
        return [
            SourceDraft(
                title=_text(row, "title"),
                url=_text(row, "url"),
                text=_text(row, "description"),
                published_time_iso=_text(row, "page_age") or None,
                favicon_url=_text(_field(row, "meta_url"), "favicon") or None,
            )
            for row in results[:count]
        ]


class TavilySearch:
    """Tavily, by the key TAVILY_API_KEY."""

    name = "tavily"

    def __init__(self, key: str, *, url: str = TAVILY_URL) -> None:
        self._key = key
        self._url = url

    async def search(self, query: str, count: int) -> Sequence[SourceDraft]:
        asked = {"query": query, "max_results": count, "search_depth": "basic"}
        headers = {"Authorization": f"Bearer {self._key}"}
        answer = await request_json("POST", self._url, headers=headers, body=asked)
        return [
            SourceDraft(
                title=_text(row, "title"),
                url=_text(row, "url"),
                text=_text(row, "content"),
                published_time_iso=_text(row, "published_date") or None,
                favicon_url=_text(row, "favicon") or None,
                objective_relevance=_share(row.get("score")),
            )
            for row in _rows(answer, "results")[:count]
        ]


def _field(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = row.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _rows(answer: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    value = answer.get(name)
    rows = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)]


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value[:MAX_FIELD_CHARS] if isinstance(value, str) else ""


def _share(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return min(1.0, max(0.0, float(value)))


class WebSearchParams(BaseModel):
    """What to look for, and how many pages at most."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str = Field(min_length=1, max_length=MAX_QUERY_CHARS)
    n: int = Field(default=5, ge=1, le=MAX_RESULTS)


class WebSearchTool:
    """Queries the first provider; the next one if that fails."""

    def __init__(self, providers: Sequence[SearchProvider], *, in_programs: bool = False) -> None:
        if not providers:
            raise Invalid("web_search needs a provider.")
        self._providers = tuple(providers)
        self.spec = ToolSpec(
            tool_id="web_tools.web_search",
            summary="Search the web; the pages found become sources.",
            guide=files("chat_proc.tools.web").joinpath("web_search.md").read_text(encoding="utf-8"),
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
        return ToolOutcome("error", f"Nothing was saved: {error.detail}")
    value = [_value(row, draft) for row, draft in zip(rows, found, strict=True)]
    text = "\n\n".join(map(_render, rows, found))
    data = build_address_data([draft.url for draft in found if not _is_written(draft.url, query)])
    return ToolOutcome("ok", text, data=data, value=value, untrusted=True)


def _is_written(url: str, query: str) -> bool:
    """Whether the query contained this address. Engines return such an address; that does not make it seen."""
    address = unquote(url).partition("://")[2].rstrip("/").casefold()
    return address in unquote(query).casefold()


def _keep_readable(found: Sequence[SourceDraft]) -> list[SourceDraft]:
    """The results with an address that can be fetched, in canonical form."""
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
