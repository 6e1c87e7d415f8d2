"""Search providers: how each is asked, and what its answers mean as sources."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast
from urllib.parse import urlencode

from everturn.model.llm.source_pool import SourceDraft
from everturn.tools.web.json_request import request_json

BRAVE_URL = "https://api.search.brave.com/res/v1/web/search"
MAX_FIELD_CHARS = 20_000
"""Of what a provider says of one page. A longer address is refused as such."""
TAVILY_URL = "https://api.tavily.com/search"


class SearchProvider(Protocol):
    """Finds pages."""

    @property
    def name(self) -> str: ...

    async def search(self, query: str, count: int) -> Sequence[SourceDraft]:
        """The best first; `text` is what the provider shows of the page. Raises Unavailable."""
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
