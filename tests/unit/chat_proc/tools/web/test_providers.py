import json

import pytest

from chat_proc.tools.web.web_search import BraveSearch, TavilySearch
from everturn.core.errors import Unavailable
from everturn.timeline.sources import SourceDraft
from everturn_testing.web_site import Site

BRAVE = {
    "type": "search",
    "web": {
        "results": [
            {
                "title": "Tides",
                "url": "https://a.example/tides",
                "description": "Twice a day.",
                "page_age": "2026-02-03T00:00:00",
                "meta_url": {"favicon": "https://a.example/f.ico"},
            },
            {"title": "More", "url": "https://b.example/"},
            "nonsense",
        ]
    },
}
TAVILY = {
    "query": "tides",
    "results": [
        {"title": "Tides", "url": "https://a.example/tides", "content": "Twice a day.", "score": 0.87},
        {"title": "Odd", "url": "https://b.example/", "content": 5, "score": "high", "published_date": "2026-01-01"},
    ],
}  # fmt: skip


async def test_brave_is_asked_by_its_key_and_its_answer_read(site: Site) -> None:
    brave = BraveSearch("k-123", url=site.json("/res", BRAVE))

    found = await brave.search("tides & moons", 5)

    assert found == [
        SourceDraft("Tides", "https://a.example/tides", published_time_iso="2026-02-03T00:00:00",
                    favicon_url="https://a.example/f.ico", text="Twice a day."),
        SourceDraft("More", "https://b.example/"),
    ]  # fmt: skip
    assert "GET /res?q=tides+%26+moons&count=5" in site.asked[0]
    assert "X-Subscription-Token: k-123" in site.asked[0]


async def test_tavily_is_asked_by_its_key_and_its_answer_read(site: Site) -> None:
    tavily = TavilySearch("k-123", url=site.json("/search", TAVILY))

    found = await tavily.search("tides", 2)

    assert found == [
        SourceDraft("Tides", "https://a.example/tides", objective_relevance=0.87, text="Twice a day."),
        SourceDraft("Odd", "https://b.example/", published_time_iso="2026-01-01"),
    ]
    head, _, body = site.asked[0].partition("\r\n\r\n")
    assert head.startswith("POST /search") and "Authorization: Bearer k-123" in head
    assert json.loads(body) == {"query": "tides", "max_results": 2, "search_depth": "basic"}


@pytest.mark.parametrize("answer", [{}, {"web": None}, {"web": {"results": {}}}, {"results": "x"}])
async def test_an_answer_without_results_finds_nothing(site: Site, answer: object) -> None:
    url = site.json("/x", answer)

    assert await BraveSearch("k", url=url).search("q", 5) == []
    assert await TavilySearch("k", url=url).search("q", 5) == []


@pytest.mark.parametrize("count", [1, 2])
async def test_no_more_is_taken_than_was_asked_for(site: Site, count: int) -> None:
    assert len(await BraveSearch("k", url=site.json("/x", BRAVE)).search("q", count)) == count


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "rejected the API key"), (429, "rate limit is reached"), (500, "answered with status 500")],
)
async def test_the_error_of_a_provider_does_not_contain_the_key(site: Site, status: int, said: str) -> None:
    with pytest.raises(Unavailable, match=said) as refused:
        await BraveSearch("k-123", url=site.json("/x", {}, status)).search("q", 5)

    assert "k-123" not in str(refused.value)
