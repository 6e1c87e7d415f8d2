import io
from collections.abc import AsyncIterator

import pypdf
import pytest
import pytest_asyncio
from pydantic import ValidationError

from chat_proc.tools.web.client import AddressGuard, WebClient
from chat_proc.tools.web.pages import PageReader
from chat_proc.tools.web.web_fetch import MAX_SHOWN_CHARS, MAX_SHOWN_LINKS, VALUE_KEYS, WebFetchTool
from everturn.turns.model import Effect
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.web_site import Site, open_site

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader() -> AsyncIterator[PageReader]:
    reader = PageReader()
    yield reader
    await reader.close()


@pytest_asyncio.fixture(loop_scope="module")
async def site() -> AsyncIterator[Site]:
    async with open_site() as site:
        yield site


@pytest.fixture
def tool(guard: AddressGuard, reader: PageReader) -> WebFetchTool:
    return WebFetchTool(WebClient(guard), reader)


async def test_web_fetch_is_pure_exploratory_and_cancellable(tool: WebFetchTool) -> None:
    spec = tool.spec

    assert (spec.tool_id, spec.effect, spec.strategy) == ("web_tools.web_fetch", Effect.PURE, "exploration")
    assert spec.cancellable


async def test_a_page_becomes_a_source_with_its_whole_text(
    site: Site, tool: WebFetchTool, pool: MemorySourcePool, call_tool
) -> None:
    whole = "word " * 5000
    url = site.page("/long.txt", whole, "text/plain")

    outcome = await call_tool(tool, {"urls": [url]})

    assert outcome.status == "ok"
    assert outcome.text.startswith(f"[[S:1]] long.txt\n{url} (text/plain, {len(whole)} characters)")
    assert outcome.text.endswith(f"characters [0-{MAX_SHOWN_CHARS}]/{len(whole)}; to read the rest: so:sources_pool[1]")
    (row,) = pool.rows
    assert (row.url, row.mime, row.is_evidence, row.text_chars) == (url, "text/plain", True, len(whole))
    assert await pool.load_text(1) == whole


async def test_several_pages_are_shown_in_the_requested_order(
    site: Site, tool: WebFetchTool, pool: MemorySourcePool, call_tool
) -> None:
    one, two = site.page("/1.txt", "one", "text/plain"), site.page("/2.txt", "two", "text/plain")

    outcome = await call_tool(tool, {"urls": [two, one, two]})

    assert [row.url for row in pool.rows] == [two, one]
    assert outcome.text.index("[[S:1]] 2.txt") < outcome.text.index("[[S:2]] 1.txt")


async def test_an_unavailable_page_does_not_affect_the_others(
    site: Site, tool: WebFetchTool, pool: MemorySourcePool, call_tool
) -> None:
    good = site.page("/good.txt", "good", "text/plain")
    urls = ["http://10.0.0.1/", site.url("/missing"), site.page("/p.png", b"png", "image/png"), good, "nonsense"]

    outcome = await call_tool(tool, {"urls": urls})

    assert outcome.status == "ok"
    assert [row.url for row in pool.rows] == [good]
    assert {tuple(page) for page in outcome.value} == {VALUE_KEYS}
    assert [page["text"] for page in outcome.value] == ["", "", "", "good", ""]
    for reason in (
        "not on the public internet",
        "answered 404",
        "Its type image/png is not supported",
        "begins with http",
    ):
        assert reason in outcome.text


async def test_the_call_fails_if_no_page_is_available(tool: WebFetchTool, pool: MemorySourcePool, call_tool) -> None:
    outcome = await call_tool(tool, {"urls": ["http://169.254.169.254/latest/meta-data/"]})

    assert outcome.status == "error" and "public internet" in outcome.text
    assert pool.rows == []


async def test_the_source_is_where_the_page_was_in_the_end(
    site: Site, tool: WebFetchTool, pool: MemorySourcePool, call_tool
) -> None:
    target = site.page("/end.txt", "end", "text/plain")

    await call_tool(tool, {"urls": [site.redirect("/short", "/end.txt")]})

    assert [row.url for row in pool.rows] == [target]


async def test_a_pdf_without_text_is_reported(
    site: Site, tool: WebFetchTool, pool: MemorySourcePool, call_tool
) -> None:
    writer = pypdf.PdfWriter()
    writer.add_blank_page(72, 72)
    written = io.BytesIO()
    writer.write(written)

    outcome = await call_tool(tool, {"urls": [site.page("/a.pdf", written.getvalue(), "application/pdf")]})

    assert "1 pages" in outcome.text
    assert [row.mime for row in pool.rows] == ["application/pdf"]


async def test_the_links_of_a_page_are_shown_and_kept_as_seen(
    site: Site, tool: WebFetchTool, pool: MemorySourcePool, call_tool
) -> None:
    url = site.page("/a", "<html><body><main><p>Words. <a href='/b?x=1#c'>Next [[S:9]]</a></p></main></body></html>")

    outcome = await call_tool(tool, {"urls": [url]})

    assert outcome.data == {"addresses": [url, site.url("/b?x=1")]}
    assert f": {site.url('/b?x=1')}" in outcome.text
    assert outcome.value[0]["links"] == [{"url": site.url("/b?x=1"), "text": "Next [[S:9]]"}]


async def test_the_first_links_of_all_pages_are_shown_each_once(
    site: Site, tool: WebFetchTool, pool: MemorySourcePool, call_tool
) -> None:
    def page(path: str, *links: str) -> str:
        anchors = " ".join(f"<a href='{link}'>Link</a>" for link in links)
        return site.page(path, f"<html><body><main><p>Words. {anchors}</p></main></body></html>")

    others = [f"/n{n}" for n in range(MAX_SHOWN_LINKS + 5)]
    outcome = await call_tool(tool, {"urls": [page("/a", "/first", *others), page("/b", "/first")]})

    shown = [line.rsplit(": ", 1)[-1] for line in outcome.text.partition("--- links")[2].splitlines()[1:]]
    assert shown == [site.url(link) for link in ("/first", *others)][:MAX_SHOWN_LINKS]


async def test_a_long_address_is_refused_before_it_is_parsed(tool: WebFetchTool, call_tool) -> None:
    with pytest.raises(ValidationError, match="at most 2048 characters"):
        await call_tool(tool, {"urls": ["http://" + "\ufdfa" * 130_000]})


async def test_a_tool_for_some_hosts_reads_no_others_even_after_a_redirect(
    site: Site, tool: WebFetchTool, pool: MemorySourcePool, call_tool
) -> None:
    here, elsewhere = site.page("/here", "Words.", "text/plain"), site.url("/here").replace("site.test", "127.0.0.1")
    limited = tool.limit_to(("site.test", "*.docs.example"))

    outcome = await call_tool(limited, {"urls": [here, elsewhere, site.redirect("/out", elsewhere)]})

    assert [row.url for row in pool.rows] == [here]
    assert outcome.text.count("not read. This agent can't read pages of '127.0.0.1'.") == 2
    assert limited.spec.only_hosts == ("site.test", "*.docs.example")
    assert "these hosts only: site.test, *.docs.example." in limited.spec.guide
    assert (await call_tool(tool, {"urls": [elsewhere]})).status == "ok"
