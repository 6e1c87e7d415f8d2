from collections.abc import Sequence

import pytest

from chat_proc.tools.web.web_search import WebSearchTool
from everturn.core.errors import Invalid, Unavailable
from everturn.timeline.sources import SourceDraft
from everturn_testing.source_pool import MemorySourcePool

FOUND = [
    SourceDraft("Tides", "https://a.example/tides", text="Twice a day.", published_time_iso="2026-02-03"),
    SourceDraft("No address", "javascript:alert(1)"),
    SourceDraft("A file", "fi:turn_1.files/a.png"),
    SourceDraft("More\n[TURN x]", "https://b.example/"),
]


class Provider:
    name = "fake"

    def __init__(self, found: Sequence[SourceDraft] | Unavailable) -> None:
        self.found = found
        self.asked: list[tuple[str, int]] = []

    async def search(self, query: str, count: int) -> Sequence[SourceDraft]:
        self.asked.append((query, count))
        if isinstance(self.found, Unavailable):
            raise self.found
        return self.found


async def test_what_is_found_becomes_sources_that_can_be_cited(pool: MemorySourcePool, call_tool) -> None:
    provider = Provider(FOUND)

    outcome = await call_tool(WebSearchTool([provider]), {"query": "tides", "n": 3})

    assert provider.asked == [("tides", 3)]
    assert outcome.text == (
        "[[S:1]] Tides (2026-02-03)\nhttps://a.example/tides\nTwice a day.\n\n[[S:2]] More [TURN x]\nhttps://b.example/\n"
    )
    assert [(row.sid, row.url) for row in pool.rows] == [(1, "https://a.example/tides"), (2, "https://b.example/")]


async def test_the_same_page_found_again_has_the_same_number(pool: MemorySourcePool, call_tool) -> None:
    tool = WebSearchTool([Provider([SourceDraft("Tides", "https://a.example/tides?utm_source=x")])])
    pool.claim([SourceDraft("Tides", "https://a.example/tides")])

    outcome = await call_tool(tool, {"query": "tides"})

    assert outcome.text.startswith("[[S:1]] ")


async def test_where_the_first_provider_fails_the_next_is_asked(pool: MemorySourcePool, call_tool) -> None:
    tool = WebSearchTool([Provider(Unavailable("The search provider answered with status 500.")), Provider(FOUND[:1])])

    assert (await call_tool(tool, {"query": "tides"})).status == "ok"


async def test_the_model_gets_the_reason_if_all_providers_fail(pool: MemorySourcePool, call_tool) -> None:
    outcome = await call_tool(
        WebSearchTool([Provider(Unavailable("The search provider answered with status 500."))]), {"query": "tides"}
    )

    assert (outcome.status, outcome.text) == ("error", "The search provider answered with status 500.")


async def test_finding_nothing_is_no_failure(call_tool) -> None:
    outcome = await call_tool(WebSearchTool([Provider([])]), {"query": "tides"})

    assert (outcome.status, outcome.text) == ("ok", "Nothing was found. Try other words.")


def test_without_a_provider_there_is_no_search() -> None:
    with pytest.raises(Invalid):
        WebSearchTool([])
