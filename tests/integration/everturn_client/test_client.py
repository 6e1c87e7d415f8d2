"""The SDK against a server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from everturn.events.model import Ready
from everturn.events.turn_view import build_state
from everturn.timeline.blocks import CompletionBody
from everturn.timeline.turns import Outcome
from everturn_client import (
    Agent,
    Connections,
    Event,
    EverturnClient,
    ProblemError,
    TimedOut,
    Timings,
    TooMuch,
    Unreachable,
)
from everturn_testing.events.scenarios import PROJECT, TENANT
from everturn_testing.states import comparable_state

if TYPE_CHECKING:
    from tests.integration.everturn_client.conftest import SmallServer

QUICK = Timings(first_delay_s=0.001, max_delay_s=0.01, give_up_s=5)


@pytest.fixture
async def client(server: "SmallServer") -> AsyncIterator[EverturnClient]:
    async with EverturnClient(server.url, timings=QUICK, random=lambda: 0.5) as opened:
        yield opened


async def test_conversations_are_created_listed_read_renamed_and_erased(
    client: EverturnClient, server: "SmallServer"
) -> None:
    server.scenario.start_turn("Hi")
    conversation_id = server.scenario.conversation.id

    created = await client.create_conversation("Sales")
    listed = await client.list_conversations(limit=5, search="Sa")
    read = await client.get_conversation(conversation_id)
    renamed = await client.rename_conversation(conversation_id, "Numbers")
    erased = await client.delete_conversation(conversation_id)

    assert (created.title, renamed.title, read.title) == ("Sales", "Numbers", "")
    assert [item.conversation_id for item in listed.items] == [conversation_id]
    assert (erased.rows, erased.objects) == ({"turn": 1}, 2)


async def test_agents_are_listed_and_ignore_what_only_a_newer_server_says(
    client: EverturnClient, server: "SmallServer"
) -> None:
    server.agents = [
        {"id": "desk", "title": "Desk", "starters": ["Hi"], "is_default": True, "is_ready": True, "colour": "red"},
        {"id": "sales", "title": "Sales", "is_ready": False, "error": "It has no id."},
    ]

    desk, sales = await client.list_agents()

    assert desk == Agent(id="desk", title="Desk", starters=("Hi",), is_default=True)
    assert (sales.is_default, sales.is_ready, sales.error) == (False, False, "It has no id.")


async def test_an_operation_is_called_once_whatever_happens(client: EverturnClient, server: "SmallServer") -> None:
    (listed,) = await client.list_operations("desk")

    assert (listed.name, listed.summary, listed.effect) == ("list", "Lists.", "irreversible")
    assert await client.call_operation("desk", "list", {"limit": 5}) == {"tickets": [1]}
    assert json.loads(await server.wait_for("POST", "/desk/operations/list")) == {"limit": 5}
    with pytest.raises(ProblemError):
        await client.call_operation("desk@1", "fail")
    assert len(server.sent("/desk@1/operations/fail")) == 1


async def test_a_retried_message_is_sent_as_json_and_accepted_once(
    client: EverturnClient, server: "SmallServer"
) -> None:
    turn_id = server.scenario.start_turn("Hi")
    server.submit_faults = ["cut"]

    accepted = await client.send_message("new", "Hi", bundle_id="b")

    assert (accepted.turn_id, accepted.receipt.state, accepted.signal_id) == (turn_id, "queued", None)
    assert json.loads(await server.wait_for("POST", "/new/messages")) == {"text": "Hi", "bundle_id": "b"}
    assert len({headers["idempotency-key"] for headers in server.sent("/messages")}) == 1


async def test_two_messages_have_two_keys(client: EverturnClient, server: "SmallServer") -> None:
    server.scenario.start_turn("Hi")

    await client.send_message("new", "Hi")
    await client.send_message("new", "Hi")

    assert len({headers["idempotency-key"] for headers in server.sent("/messages")}) == 2


async def test_files_are_sent_as_multipart(client: EverturnClient, server: "SmallServer", tmp_path: Path) -> None:
    server.scenario.start_turn("Hi")
    (tmp_path / "sales.csv").write_bytes(b"a,b\r\n")

    await client.send_message("new", "Ünï", files=[tmp_path / "sales.csv"])

    body = await server.wait_for("POST", "/messages")
    assert server.sent("/messages")[0]["content-type"].startswith("multipart/form-data; boundary=")
    assert b'name="message"\r\nContent-Type: application/json\r\n\r\n{"text": "\\u00dcn\\u00ef"}\r\n' in body
    assert b'name="files"; filename="sales.csv"\r\nContent-Type: text/csv\r\n\r\na,b\r\n\r\n' in body


async def test_signals_and_feedback_are_sent(client: EverturnClient, server: "SmallServer") -> None:
    turn_id = server.scenario.start_turn("Hi")
    server.is_signal = True

    accepted = await client.send_signal("conv_1", "steer", "North", target_turn_id=turn_id)
    await client.feedback("conv_1", turn_id, "not_ok", "Hm")

    assert accepted.signal_id == "sig_1"
    assert json.loads(await server.wait_for("POST", "/conv_1/signals")) == {
        "kind": "steer",
        "text": "North",
        "target_turn_id": turn_id,
    }
    assert json.loads(await server.wait_for("POST", f"/{turn_id}/feedback")) == {"reaction": "not_ok", "text": "Hm"}


async def test_external_events_carry_payload_and_files(
    client: EverturnClient, server: "SmallServer", tmp_path: Path
) -> None:
    server.scenario.start_turn("Hi")
    server.is_signal = True
    (tmp_path / "a.csv").write_bytes(b"1,2")

    plain = await client.send_event("conv_1", Event("form", {"n": 1}, iteration_credit=2), "Sent.")
    body = await server.wait_for("POST", "/conv_1/signals")
    await client.send_event("conv_1", Event("alert", reactive=False), files=[tmp_path / "a.csv"])
    with_file = await server.wait_for("POST", "/conv_1/signals", count=2)

    assert (plain.signal_id, plain.receipt.state) == ("sig_1", "accepted")
    assert json.loads(body) == {
        "kind": "event",
        "text": "Sent.",
        "event": {"kind": "form", "payload": {"n": 1}, "reactive": True, "iteration_credit": 2},
    }
    assert b'"reactive": false' in with_file and b"1,2" in with_file


async def test_fetch_reads_the_state(client: EverturnClient, server: "SmallServer") -> None:
    turn_id = server.scenario.start_turn("Hi")

    state = await client.fetch("conv_1", turn_ids=[turn_id])

    assert state == build_state(server.scenario.page, tenant=TENANT, project=PROJECT)
    assert json.loads(await server.wait_for("POST", "/fetch"))["turn_ids"] == [turn_id]


async def test_a_turn_followed_over_cuts_ends_in_the_state_of_rest(
    client: EverturnClient, server: "SmallServer"
) -> None:
    scenario = server.scenario
    turn_id = scenario.start_turn("Hi")
    scenario.start_round()
    scenario.add(CompletionBody(text=scenario.stream("answer", 0, [f"{n} " for n in range(40)])))
    scenario.end_turn(Outcome.COMPLETED)
    server.snapshot_page = 0
    server.stream_faults = ["bytes:1700", "bytes:1200", 503, "bytes:700"]

    async with aclosing(client.follow_turn(scenario.conversation.id, turn_id)) as steps:
        followed = [step async for step in steps]

    # The conversation's own state changes only after the turn's end.
    expected = build_state(scenario.page, tenant=TENANT, project=PROJECT)
    assert comparable_state(followed[-1].state).turns == comparable_state(expected).turns
    assert followed[-1].turn == followed[-1].state.turns[-1]
    assert len(followed) > 40


async def test_an_ended_turn_that_a_snapshot_has_no_room_for_is_fetched(
    client: EverturnClient, server: "SmallServer"
) -> None:
    turn_id = server.scenario.start_turn("Hi")
    server.scenario.start_round()
    server.scenario.end_turn(Outcome.COMPLETED)
    server.snapshot_is_full = True

    async with aclosing(client.follow_turn("conv_1", turn_id, limit_s=30)) as steps:
        followed = [step async for step in steps]

    assert followed[-1].turn is not None
    assert followed[-1].turn.outcome == "completed"


async def test_following_a_turn_that_does_not_end_times_out(client: EverturnClient, server: "SmallServer") -> None:
    turn_id = server.scenario.start_turn("Hi")

    with pytest.raises(TimedOut):
        async with aclosing(client.follow_turn("conv_1", turn_id, limit_s=0.2)) as steps:
            async for _ in steps:
                pass


async def test_a_download_is_saved_to_a_file_or_a_folder(
    client: EverturnClient, server: "SmallServer", tmp_path: Path
) -> None:
    server.files["art_a.bin"] = bytes(range(256)) * 10

    named = await client.download("art_a.bin", tmp_path / "x")
    first, second = [await client.download("art_a.bin", tmp_path) for _ in range(2)]

    assert (named, first, second) == (tmp_path / "x", tmp_path / "a.bin", tmp_path / "a (1).bin")
    assert named.read_bytes() == second.read_bytes() == server.files["art_a.bin"]


async def test_a_download_that_fails_leaves_nothing(
    client: EverturnClient, server: "SmallServer", tmp_path: Path
) -> None:
    server.files |= {"art_broken": b"broken" * 100, "art_big": b"x" * 300}

    with pytest.raises(ProblemError):
        await client.download("art_absent", tmp_path)
    with pytest.raises(Unreachable):
        await client.download("art_broken", tmp_path)
    with pytest.raises(TooMuch):
        await client.download("art_big", tmp_path, max_bytes=200)

    assert list(await asyncio.to_thread(lambda: list(tmp_path.iterdir()))) == []


async def test_streams_have_their_own_connections_and_their_own_limit(server: "SmallServer") -> None:
    conversation_id = server.scenario.conversation.id
    timings = replace(QUICK, connect_s=1.0)
    async with (
        EverturnClient(server.url, timings=timings, connections=Connections(calls=1, streams=2)) as client,
        aclosing(client.events(conversation_id)) as first,
        aclosing(client.events(conversation_id)) as second,
    ):
        await anext(first)
        await anext(second)

        with pytest.raises(TooMuch, match="stream connections"):
            await anext(client.events(conversation_id))
        read = await client.get_conversation(conversation_id)
        await first.aclose()
        async with aclosing(client.events(conversation_id)) as third:
            envelope = await anext(third)

    assert read.conversation_id == conversation_id
    assert isinstance(envelope.data, Ready)
