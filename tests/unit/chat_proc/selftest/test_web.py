"""Web tools: the platform's own client is asked, and a server that was reached is noticed."""

import asyncio

import pytest
from tests.unit.chat_proc.selftest.results import build_run

from chat_proc.selftest.web import Site, build_web_trial, list_urls, open_site
from everturn.core.ids import TurnId
from everturn.execution.messages import GatewayCall

TURN = TurnId("turn_1")


async def test_every_address_is_refused_and_no_server_reached():
    async with open_site() as site:
        trial = build_web_trial(site)
        assert trial.call_tool is not None

        for number, (name, url) in enumerate(list_urls(site)):
            reply = await trial.call_tool(GatewayCall(number, "web_tools.web_fetch", {"url": url}))
            assert not reply.ok, name

        assert site.reached == 0


async def test_the_site_sends_on_and_its_neighbour_counts_who_comes():
    async with open_site() as site:
        reader, writer = await asyncio.open_connection("127.0.0.77", site.site_port)
        writer.write(b"GET /to-host HTTP/1.1\r\n\r\n")
        answer = await reader.read()
        writer.close()
        reader, other = await asyncio.open_connection("127.0.0.1", site.port)
        assert await reader.read() == b""
        other.close()
        assert site.reached == 1

    assert f"Location: http://127.0.0.1:{site.port}/".encode() in answer


def test_a_page_that_came_and_a_server_that_was_reached_have_not_held():
    site = Site()
    trial = build_web_trial(site)
    site.reached = 1

    printed = "fetch a file => GOT root:x\nfetch by IPv6 => tool_error: no\n"
    held = {finding.attempt: finding.held for finding in trial.judge(build_run(printed))}

    assert held == {"fetch a file": False, "fetch by IPv6": True, "reach a server of this machine": False}


@pytest.mark.parametrize("host", ["site.test", "changing.test"])
async def test_names_of_the_battery_are_not_asked_of_the_machine(host):
    assert await Site().resolve(host, 80, TURN) == ["127.0.0.77"]
