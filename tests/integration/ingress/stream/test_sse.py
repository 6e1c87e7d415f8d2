"""Event streams over HTTP, on real servers."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from everturn.core.ids import ConversationId
from everturn.events.model import ChatComplete
from everturn.postgres.pool import Database
from everturn.redis_drivers import RedisDrivers
from everturn.timeline.turns import TurnUsage
from everturn.turns.postgres_leases import PostgresLeases
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_testing.turns.harness import closing
from ingress.stream.rows import SNAPSHOT_BYTES

BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]
ENDED = ChatComplete(outcome="completed", answer="a", rounds=1, usage=TurnUsage(), elapsed_ms=1)


async def test_a_stream_without_a_cursor_starts_with_a_snapshot(chat: Any, follow: Any, worker: Any) -> None:
    sent = await chat.send("hello")

    async with follow(sent["conversation_id"]) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        assert stream.response.headers["x-accel-buffering"] == "no"
        assert (await stream.next()).event == "ready"
        snapshot = await stream.until("stream_snapshot")
        assert snapshot.data.data.state.turns[0].text == "hello"
        await worker.claim(sent["conversation_id"])
        ids = await worker.say(sent["conversation_id"], "a", "b")
        first, second = await stream.until("chat_delta", skip=(":", "conv_status")), await stream.until("chat_delta")

    assert [first.id, second.id] == ids
    assert (first.data.data.text, second.data.data.text) == ("a", "b")


async def test_a_stream_resumes_exactly_after_any_cut(chat: Any, follow: Any, worker: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    ids = [each for n in range(5) for each in await worker.say(conversation, *(f"{n}{k}" for k in range(3)))]

    for cut in range(len(ids)):
        async with follow(conversation, last_event_id=ids[cut]) as stream:
            ready = await stream.next()
            got = [(await stream.until("chat_delta")).id for _ in ids[cut + 1 :]]
            assert ready.data.data.cursor == ids[cut]
            assert got == ids[cut + 1 :]


async def test_a_stream_resumes_from_a_snapshot(chat: Any, follow: Any, worker: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    await worker.say(conversation, "committed")
    committed = await worker.commit(conversation)
    (after,) = await worker.say(conversation, "later")

    async with follow(conversation) as stream:
        snapshot = await stream.until("stream_snapshot", skip=("ready",))
        first = await stream.until("chat_delta", skip=(":", "conv_status"))
    async with follow(conversation, last_event_id=snapshot.id) as stream:
        again = await stream.until("chat_delta", skip=("ready",))

    assert snapshot.id == snapshot.data.data.state.cursor == committed
    assert first.id == again.id == after


async def test_a_snapshot_of_large_turns_is_bounded_and_links_older_turns(
    client: httpx2.AsyncClient, chat: Any, follow: Any, worker_database: Database
) -> None:
    text = "x" * (SNAPSHOT_BYTES // 2 + 1)
    first = await chat.send(text)
    conversation = first["conversation_id"]
    leases, timelines = PostgresLeases(worker_database, owner="w"), PostgresTimelines(worker_database)
    claim = await leases.try_claim(conversation)
    assert claim is not None
    await timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
    await leases.release(claim.lease, requeue=False)
    second = await chat.send(text, conversation)

    async with follow(conversation) as stream:
        state = (await stream.until("stream_snapshot", skip=("ready",))).data.data.state
    page = {"conversation_id": conversation}
    older = (await client.post(f"{BASE}/fetch", json={**page, "cursor": state.next_cursor})).json()
    whole = (await client.post(f"{BASE}/fetch", json=page)).json()

    assert [turn.turn_id for turn in state.turns] == [second["turn_id"]]
    assert [turn["turn_id"] for turn in older["turns"]] == [first["turn_id"]]
    assert [turn["turn_id"] for turn in whole["turns"]] == [first["turn_id"], second["turn_id"]]


async def test_a_stream_resumes_from_a_snapshot_before_the_first_commit(chat: Any, follow: Any, worker: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    ids = await worker.say(conversation, "a", "b")

    async with follow(conversation, last_event_id="1-99") as stream:
        snapshot = await stream.until("stream_snapshot", skip=("ready", "stream_gap"))
    async with follow(conversation, last_event_id=snapshot.id) as stream:
        got = [(await stream.until("chat_delta", skip=("ready",))).id for _ in ids]

    assert snapshot.id == snapshot.data.data.state.cursor == "0-0"
    assert got == ids


async def test_a_client_before_the_first_event_gets_a_snapshot_if_events_expired(
    chat: Any, follow: Any, worker: Any, redis_drivers: RedisDrivers
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    await worker.say(conversation, "a")
    committed = await worker.commit(conversation)
    await redis_drivers.event_writer.erase(ConversationId(conversation))

    async with follow(conversation, last_event_id="0-0") as stream:
        seen = [await stream.next() for _ in range(3)]

    assert [frame.event for frame in seen] == ["ready", "stream_gap", "stream_snapshot"]
    assert seen[-1].id == committed


async def test_the_header_wins_over_the_parameter(chat: Any, follow: Any, worker: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    ids = await worker.say(conversation, "a", "b", "c")

    async with follow(conversation, last_event_id=ids[1], after=ids[0]) as stream:
        assert (await stream.until("chat_delta", skip=("ready",))).id == ids[2]


async def test_from_the_first_event_on(chat: Any, follow: Any, worker: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    ids = await worker.say(conversation, "a", "b")

    async with follow(conversation, after="0-0") as stream:
        assert [(await stream.until("chat_delta", skip=("ready",))).id for _ in ids] == ids


async def test_a_resumed_client_gets_the_current_state_and_receipts(
    client: httpx2.AsyncClient, chat: Any, follow: Any, worker: Any
) -> None:
    sent = await chat.send("hello")
    conversation = sent["conversation_id"]
    await worker.claim(conversation)
    (cursor,) = await worker.say(conversation, "a")
    await chat.send("more", conversation)

    async with follow(conversation, after=cursor) as stream:
        status = await stream.until("conv_status", skip=("ready",))
        signal = await stream.until("chat_signal")

    assert (status.id, status.data.data.state, status.data.data.turn_id) == (None, "running", sent["turn_id"])
    assert (signal.data.data.text, signal.data.data.state) == ("more", "accepted")


@pytest.mark.parametrize(
    "cursor", ["x", "1", "1-", "-1", "1-1-1", "1-1 ", "\u0661-1", "1-" + "9" * 30, "$", "*", "1.0-1"]
)
async def test_a_malformed_cursor_is_400(chat: Any, follow: Any, refused: Refused, cursor: str) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    async with follow(conversation, after=cursor) as stream:
        refused(stream.response, 400)


@pytest.mark.parametrize("cursor", ["99-1", "9223372036854775807-1"])
async def test_a_cursor_from_the_future_is_400(
    chat: Any, follow: Any, worker: Any, refused: Refused, cursor: str
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    await worker.say(conversation, "a")

    async with follow(conversation, after=cursor) as stream:
        refused(stream.response, 400)


async def test_a_cursor_that_the_stream_has_lost_gets_gap_and_snapshot(chat: Any, follow: Any, worker: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    await worker.say(conversation, "a")

    async with follow(conversation, after="1-99") as stream:
        seen = [await stream.next() for _ in range(3)]

    assert [frame.event for frame in seen] == ["ready", "stream_gap", "stream_snapshot"]


async def test_a_foreign_or_absent_conversation_has_no_stream(
    client: httpx2.AsyncClient, chat: Any, refused: Refused
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    foreign = await client.get(f"{BASE}/{conversation}/events", headers={"X-Dev-User": "bob"})
    absent = await client.get(f"{BASE}/conv_01890a5d-ac96-774b-bcce-b302099a8057/events")

    assert refused(foreign, 404) == refused(absent, 404)


async def test_a_silent_stream_gets_comments(chat: Any, follow: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    async with follow(conversation) as stream, asyncio.timeout(5):
        while (await stream.next()).event != ":":
            pass


async def test_two_clients_get_the_same(chat: Any, follow: Any, worker: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)

    async with follow(conversation) as one, follow(conversation) as other:
        for stream in (one, other):
            await stream.until("stream_snapshot", skip=("ready",))
        ids = await worker.say(conversation, "a", "b", "c")
        got = [
            [(await stream.until("chat_delta", skip=(":", "conv_status"))).id for _ in ids] for stream in (one, other)
        ]

    assert got == [ids, ids]


async def test_a_second_end_of_a_turn_is_dropped(chat: Any, follow: Any, worker: Any) -> None:
    sent = await chat.send("hello")
    conversation, turn = sent["conversation_id"], sent["turn_id"]
    await worker.claim(conversation)

    async with follow(conversation) as stream:
        await stream.until("stream_snapshot", skip=("ready",))
        await worker.publish(conversation, ENDED, turn_id=turn)
        await worker.publish(conversation, ENDED, turn_id=turn)
        (last,) = await worker.say(conversation, "after")
        await stream.until("chat_complete", skip=(":", "conv_status"))
        assert (await stream.until("chat_delta")).id == last

    async with follow(conversation, after="0-0") as stream:
        await stream.until("chat_complete", skip=("ready",))
        assert (await stream.until("chat_delta")).id == last


async def test_the_streams_of_one_user_are_capped(start_ingress: Any, chat: Any, refused: Refused) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    capped = start_ingress({"streams_of_user": 2})
    url = f"{BASE}/{conversation}/events"

    async with httpx2.AsyncClient(base_url=capped.url) as http:
        async with http.stream("GET", url), http.stream("GET", url):
            refused(await http.get(url), 429)
        statuses: list[int] = []
        for _ in range(100):
            async with http.stream("GET", url) as again:
                statuses.append(again.status_code)
            if statuses[-1] == 200:
                break
            await asyncio.sleep(0.05)
    assert statuses[-1] == 200


async def test_simple_clients_get_the_same_stream_in_a_view_of_their_own(
    client: httpx2.AsyncClient, chat: Any, worker: Any, refused: Refused
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    ids = await worker.say(conversation, "a", "b")
    url, last = f"{BASE}/{conversation}/events", f"id: {ids[-1]}\n"

    async with client.stream("GET", url, params={"view": "steps", "after": "0-0"}) as response:
        text = ""
        async for piece in response.aiter_text():
            text += piece
            if last in text:
                break

    assert response.status_code == 200
    assert "event: ready\n" in text
    assert last in text
    assert "chat_delta" not in text
    for view in ("ag-ui", "ai-sdk", "", "STEPS"):
        refused(await client.get(url, params={"view": view}), 422)
