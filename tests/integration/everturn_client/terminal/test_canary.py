"""The canary against a server that answers, refuses, fails, hangs, or forgets its listeners."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from io import StringIO
from typing import TYPE_CHECKING

import httpx2
import pytest
from helpers.waiting import wait_until

from everturn.timeline.blocks import CompletionBody
from everturn.timeline.turns import Outcome
from everturn_client import EverturnClient, Timings
from everturn_client.canary import MAX_TURNS, Canary, Reading
from everturn_client.metrics import OUTCOMES
from everturn_client.terminal.canary import render_reading, run_canary
from everturn_client.terminal.screen import Screen

if TYPE_CHECKING:
    from tests.integration.everturn_client.conftest import SmallServer

QUICK = Timings(first_delay_s=0.001, max_delay_s=0.01, give_up_s=5)
LIMIT_S = 20.0
SHORT_S = 0.5
WRITES_S = 0.05
"""How long the model writes its answer."""


@pytest.fixture
async def client(server: "SmallServer") -> AsyncIterator[EverturnClient]:
    async with EverturnClient(server.url, timings=QUICK, random=lambda: 0.5) as opened:
        yield opened


async def answer(server: "SmallServer", count: int, outcome: Outcome = Outcome.COMPLETED) -> None:
    """Run the turn of the message with this number, counted from 1, as a worker does."""
    await server.wait_for("POST", "/messages", count=count)
    server.scenario.start_round()
    text = server.scenario.stream("answer", 0, ["Yes."])
    await server.publish()
    await asyncio.sleep(WRITES_S)
    server.scenario.add(CompletionBody(text=text))
    server.scenario.end_turn(outcome)
    await server.publish()


async def read(canary: Canary, server: "SmallServer", count: int = 1, outcome: Outcome = Outcome.COMPLETED) -> Reading:
    """The reading of one message and its turn."""
    server.scenario.start_turn("Are you there?")
    reading, _ = await asyncio.gather(canary.read(), answer(server, count, outcome))
    return reading


def count_deletions(server: "SmallServer") -> int:
    return sum(1 for method, *_ in server.requests if method == "DELETE")


async def test_each_stage_is_timed_over_one_connection_and_nothing_is_left(
    client: EverturnClient, server: "SmallServer"
) -> None:
    async with aclosing(Canary(client, "canary", "Are you there?", limit_s=LIMIT_S)) as canary:
        readings = [await read(canary, server, number) for number in (1, 2)]

    for reading in readings:
        assert (reading.outcome, reading.detail) == ("ok", "")
        assert [*reading.seen_s] == ["accepted", "started", "answering", "ended"]
        assert reading.seen_s["started"] <= reading.seen_s["answering"] < reading.seen_s["ended"]
    assert len(server.sent("/events")) == 1
    assert count_deletions(server) == 1


async def test_a_conversation_is_replaced_before_it_grows_long(client: EverturnClient, server: "SmallServer") -> None:
    async with aclosing(Canary(client, "canary", "Are you there?", limit_s=LIMIT_S)) as canary:
        for number in range(1, MAX_TURNS + 1):
            assert (await read(canary, server, number)).outcome == "ok"

        assert count_deletions(server) == 1


async def test_a_turn_that_ended_without_an_event_shows_a_deaf_listener(
    client: EverturnClient, server: "SmallServer"
) -> None:
    async with aclosing(Canary(client, "canary", "Are you there?", limit_s=SHORT_S)) as canary:
        assert (await read(canary, server)).outcome == "ok"
        server.is_deaf = True
        deaf = await read(canary, server, 2)
        server.is_deaf = False
        healed = await read(canary, server, 3)

    assert (deaf.outcome, [*deaf.seen_s], healed.outcome) == ("deaf", ["accepted"], "ok")
    assert "has ended, and its event did not arrive within 0.5 s" in deaf.detail
    assert len(server.sent("/events")) == 2


async def test_a_turn_that_does_not_end_is_late_and_takes_no_later_message(
    client: EverturnClient, server: "SmallServer"
) -> None:
    server.scenario.start_turn("Are you there?")
    async with aclosing(Canary(client, "canary", "Are you there?", limit_s=SHORT_S)) as canary:
        late = await canary.read()

        assert (late.outcome, late.detail) == ("late", f"The turn {late.detail.split()[2]} did not end within 0.5 s.")
        assert count_deletions(server) == 1


async def test_a_failed_turn_and_a_refused_message_have_different_outcomes(
    client: EverturnClient, server: "SmallServer"
) -> None:
    async with aclosing(Canary(client, "canary", "Are you there?", limit_s=LIMIT_S)) as canary:
        failed = await read(canary, server, outcome=Outcome.CAPPED)
        server.scenario.start_turn("Are you there?")
        server.submit_faults = [403]
        refused = await canary.read()

    assert (failed.outcome, [*failed.seen_s][-1]) == ("failed", "ended")
    assert "ended as completed: capped." in failed.detail
    assert (refused.outcome, dict(refused.seen_s)) == ("rejected", {})
    assert "Refused on purpose" in refused.detail


async def test_a_stream_that_ends_for_good_is_opened_again(client: EverturnClient, server: "SmallServer") -> None:
    server.stream_faults = [404]
    async with aclosing(Canary(client, "canary", "Are you there?", limit_s=LIMIT_S)) as canary:
        refused = await canary.read()

        assert refused.outcome == "rejected"
        assert (await read(canary, server)).outcome == "ok"


async def test_the_command_prints_a_line_for_each_message_and_serves_its_metrics(
    client: EverturnClient, server: "SmallServer"
) -> None:
    out, err = StringIO(), StringIO()
    canary = Canary(client, "canary", "Are you there?", limit_s=LIMIT_S)
    server.scenario.start_turn("Are you there?")
    screen = Screen(out, err, colour=False)
    running = asyncio.create_task(run_canary(canary, screen, every_s=60, once=False, address=("127.0.0.1", 0)))
    await answer(server, 1)
    await wait_until(lambda: "ended" in out.getvalue())
    async with httpx2.AsyncClient() as http:
        page = (await http.get(err.getvalue().split()[-1].removesuffix("."))).text
    running.cancel()
    await asyncio.wait((running,))

    assert [f'everturn_canary_turns_total{{outcome="{name}"}} {float(name == "ok")}' in page for name in OUTCOMES] == [
        True
    ] * 5
    assert 'everturn_canary_stage_seconds_count{stage="ended"} 1.0' in page
    assert out.getvalue().split()[1] == "ok"
    assert count_deletions(server) == 1


async def test_one_message_ends_with_its_result(client: EverturnClient, server: "SmallServer") -> None:
    canary, screen = Canary(client, "canary", "Hi", limit_s=SHORT_S), Screen(StringIO(), StringIO(), colour=False)
    server.scenario.start_turn("Hi")

    assert not await run_canary(canary, screen, every_s=60, once=True, address=None)
    server.submit_faults = [500] * 10
    assert not await run_canary(canary, screen, every_s=60, once=True, address=None)
    server.submit_faults.clear()
    good, _ = await asyncio.gather(
        run_canary(Canary(client, "canary", "Hi", limit_s=LIMIT_S), screen, every_s=60, once=True, address=None),
        answer(server, len(server.sent("/messages")) + 1),
    )
    assert good


def test_a_line_has_the_stages_that_were_seen() -> None:
    line = render_reading(Reading("late", {"accepted": 0.0213}, "The turn turn_1 did not end within 30 s."))

    assert line.split("  ", 1)[1] == "late      accepted 0.021 s  The turn turn_1 did not end within 30 s."
