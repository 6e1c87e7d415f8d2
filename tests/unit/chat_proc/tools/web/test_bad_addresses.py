"""Bad addresses against the fetch tool as a worker has it: one answer each, and nothing reaches this machine."""

import asyncio
import socket
from collections.abc import Sequence

import pytest
from bad_input.playing import play
from bad_input.urls import ADDRESSES, CLOSED, HOSTS, NAMES

from chat_proc.tools.web.client import MAX_BODY_BYTES, AddressGuard, WebClient, is_public
from chat_proc.tools.web.pages import PageReader
from chat_proc.tools.web.web_fetch import WebFetchTool
from everturn.core.ids import TurnId
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.web_site import Answer, Site

TURN = TurnId("turn_1")

SECRET = "what only this machine may read"


async def resolve(host: str, port: int, turn_id: TurnId) -> Sequence[str]:
    """Names of the table; and numbers in every spelling that the machine's resolver takes, without asking anybody."""
    if host.lower() in NAMES:
        return NAMES[host.lower()]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return [str(address[0]) for *_, address in found]


@pytest.fixture
def tool(site: Site) -> WebFetchTool:
    """It takes what is public; the port of a site of this machine is open, so that a way in would be seen."""
    site.page("/secret", SECRET, "text/plain")
    return WebFetchTool(WebClient(AddressGuard(resolve, ports={80, 443, site.port})), PageReader())


async def test_no_spelling_of_a_closed_address_is_fetched(
    site: Site, tool: WebFetchTool, pool: MemorySourcePool, call_tool
) -> None:
    async def ask(case: str) -> None:
        outcome = await call_tool(tool, {"urls": [f"http://{HOSTS[case]}:{site.port}/secret"]})
        assert (outcome.status, CLOSED in outcome.text) == ("error", True), outcome.text

    await play(HOSTS, ask)

    assert (site.asked, pool.rows) == ([], [])


async def test_addresses_outside_the_web_get_the_same_error(
    site: Site, tool: WebFetchTool, pool: MemorySourcePool, call_tool
) -> None:
    async def ask(case: str) -> None:
        url, words = ADDRESSES[case]
        outcome = await call_tool(tool, {"urls": [url.replace("{port}", str(site.port))]})
        assert (outcome.status, words in outcome.text) == ("error", True), outcome.text

    await play(ADDRESSES, ask)

    assert (site.asked, pool.rows) == ([], [])


@pytest.mark.parametrize("hops", [1, 3])
async def test_no_redirect_leads_to_a_closed_address(site: Site, pool: MemorySourcePool, call_tool, hops: int) -> None:
    """Only the first host is open; the others go through the same checks as an address that was asked for."""

    async def resolve_first(host: str, port: int, turn_id: TurnId) -> Sequence[str]:
        return ["127.0.0.1"] if host == "site.test" else await resolve(host, port, turn_id)

    # 127.0.0.1 stands for the public internet here, so the cases are those that are something else.
    guard = AddressGuard(
        resolve_first, is_allowed=lambda it: str(it) == "127.0.0.1" or is_public(it), ports={80, 443, site.port}
    )
    tool = WebFetchTool(WebClient(guard), PageReader())
    targets = {
        case: host
        for case, host in HOSTS.items()
        if "127.0.0.1" not in await resolve(host.strip("[]"), site.port, TURN)
    }
    assert len(targets) > 20

    async def ask(case: str) -> None:
        name = case.replace(" ", "-").replace(",", "")
        for hop in range(1, hops):
            site.redirect(f"/{name}-{hops}-{hop}", f"/{name}-{hops}-{hop + 1}")
        site.redirect(f"/{name}-{hops}-{hops}", f"http://{targets[case]}:{site.port}/secret")
        outcome = await call_tool(tool, {"urls": [site.url(f"/{name}-{hops}-1")]})
        assert (outcome.status, CLOSED in outcome.text) == ("error", True), outcome.text

    await play(targets, ask)

    assert len(site.asked) == hops * len(targets)
    assert pool.rows == []


async def test_a_page_of_ten_gigabytes_is_read_up_to_the_cap(
    site: Site, guard: AddressGuard, pool: MemorySourcePool, call_tool
) -> None:
    body = b"a line of a page\n" * (MAX_BODY_BYTES // 17 + 2)
    headers = {"Content-Type": "text/plain", "Content-Length": "10000000000"}
    site.pages["/huge.txt"] = Answer(body, headers=headers, stalls=True)

    outcome = await call_tool(WebFetchTool(WebClient(guard), PageReader()), {"urls": [site.url("/huge.txt")]})

    assert outcome.status == "ok"
    assert "but was cut" in outcome.text
    (row,) = pool.rows
    assert row.text_chars <= MAX_BODY_BYTES


async def test_a_server_that_drips_is_given_up_in_time(site: Site, guard: AddressGuard, call_tool) -> None:
    site.pages["/drip.txt"] = Answer(b"a", headers={"Content-Type": "text/plain"}, stalls=True)
    tool = WebFetchTool(WebClient(guard, timeout_s=0.3), PageReader())

    outcome = await call_tool(tool, {"urls": [site.url("/drip.txt")]})

    assert (outcome.status, "did not load within" in outcome.text) == ("error", True)
