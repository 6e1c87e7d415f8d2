"""The hub after losses: a gap and a snapshot, never silence and never a broken sequence."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2

from everturn.core.ids import ConversationId
from everturn.events.cursor import EventCursor
from everturn.events.model import ChatRewind
from everturn.events.stream import EncodedEvent, Entry
from everturn.events.views import TurnView
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn_local.servers.redis import EmbeddedRedis

BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]
HINTS = (":", "conv_status", "chat_signal", "conv_title")


async def test_a_cursor_below_the_buffer_gets_gap_snapshot_and_live(
    chat: Any, follow: Any, worker: Any, redis_drivers: RedisDrivers
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    for n in range(300):
        ids = await worker.say(conversation, str(n))
    await worker.commit(conversation)
    client = redis_drivers.event_writer._client  # pyright: ignore[reportPrivateUsage]
    await client.xtrim(f"events:{{{conversation}}}", maxlen=2, approximate=False)

    async with follow(conversation, after=f"{ids[0].split('-')[0]}-3") as stream:
        gap = await stream.until("stream_gap", skip=("ready",))
        snapshot = await stream.until("stream_snapshot")
        (live,) = await worker.say(conversation, "live")
        assert (await stream.until("chat_delta", skip=HINTS)).id == live

    fence = ids[0].split("-")[0]
    assert (gap.data.data.after, gap.data.data.oldest) == (f"{fence}-3", f"{fence}-299")
    assert snapshot.id == f"{fence}-300"


async def test_a_hole_in_the_chain_gets_gap_snapshot_and_live(chat: Any, follow: Any, worker: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)

    async with follow(conversation) as stream:
        await stream.until("stream_snapshot", skip=("ready",))
        await worker.say(conversation, "a")
        await stream.until("chat_delta", skip=HINTS)
        worker.skip(conversation, 3)
        await worker.commit(conversation)
        (after,) = await worker.say(conversation, "b", anywhere=True)
        await stream.until("stream_gap", skip=HINTS)
        await stream.until("stream_snapshot")
        assert (await stream.until("chat_delta", skip=HINTS)).id == after


async def test_a_rewind_repairs_the_stream_after_redis_was_emptied(
    chat: Any, follow: Any, worker: Any, redis_server: EmbeddedRedis
) -> None:
    sent = await chat.send("hello")
    conversation = sent["conversation_id"]
    await worker.claim(conversation)
    rewind = ChatRewind(turn=TurnView(turn_id=sent["turn_id"], ordinal=1, status="running", text="hello"))

    async with follow(conversation) as stream:
        await stream.until("stream_snapshot", skip=("ready",))
        await worker.say(conversation, "a")
        await stream.until("chat_delta", skip=HINTS)
        redis_server.empty()
        worker.skip(conversation, 2)
        (rewound,) = await worker.publish(conversation, rewind, anywhere=True, turn_id=sent["turn_id"])
        await stream.until("stream_gap", skip=HINTS)
        await stream.until("stream_snapshot")
        assert (await stream.until("chat_rewind", skip=HINTS)).id == rewound
        (live,) = await worker.say(conversation, "b")
        assert (await stream.until("chat_delta", skip=HINTS)).id == live


async def test_a_client_with_a_cursor_of_an_emptied_redis_is_resynced(
    chat: Any, follow: Any, worker: Any, redis_server: EmbeddedRedis
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    (seen,) = await worker.say(conversation, "a")
    redis_server.empty()

    async with follow(conversation, after=seen) as stream:
        await stream.until("stream_gap", skip=("ready",))
        await stream.until("stream_snapshot")


async def test_a_client_that_follows_a_turn_before_its_first_entry_has_no_gap(
    chat: Any, follow: Any, worker: Any
) -> None:
    sent = await chat.send("hello")
    conversation = sent["conversation_id"]
    await worker.claim(conversation)
    worker.skip(conversation)
    await worker.commit(conversation)
    worker.rewind_ids(conversation)

    async def publish_late() -> None:
        await asyncio.sleep(0.1)
        await worker.say(conversation, "a", "b")

    publishing = asyncio.create_task(publish_late())
    async with follow(conversation, after="0-0") as stream:
        first = await stream.until("chat_delta", skip=("ready", *HINTS))
    await publishing

    assert first.id.endswith("-1")


async def test_a_running_turn_whose_events_are_lost_gets_gap_and_snapshot(
    chat: Any, follow: Any, worker: Any, redis_server: EmbeddedRedis
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    await worker.say(conversation, "a")
    await worker.commit(conversation)
    redis_server.empty()

    async with asyncio.timeout(5), follow(conversation, after="0-0") as stream:
        await stream.until("stream_gap", skip=("ready",))
        await stream.until("stream_snapshot")


async def test_a_message_and_a_signal_reach_open_streams(chat: Any, follow: Any) -> None:
    conversation = (await chat.http.post(BASE, json={"title": "t"})).json()["conversation_id"]

    async with follow(conversation) as stream:
        await stream.until("stream_snapshot", skip=("ready",))
        sent = await chat.send("hello", conversation)
        status = await stream.until("conv_status", skip=(":", "conv_title"))
        await chat.send("more", conversation)
        signal = await stream.until("chat_signal", skip=HINTS)

    assert (status.id, status.data.data.state, status.data.data.turn_id) == (None, "queued", sent["turn_id"])
    assert (signal.id, signal.data.turn_id, signal.data.data.text) == (None, sent["turn_id"], "more")


async def test_the_streams_of_an_erased_conversation_end(chat: Any, follow: Any, refused: Refused) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    async with follow(conversation) as stream:
        await stream.until("stream_snapshot", skip=("ready",))
        await chat.http.delete(f"{BASE}/{conversation}")
        async with asyncio.timeout(5):
            rest = await stream.rest()

    assert not [frame for frame in rest if frame.event not in HINTS]
    refused(await chat.http.get(f"{BASE}/{conversation}/events"), 404)


async def test_streams_survive_a_redis_outage_and_are_resynced(
    start_ingress: Any, ingress_env: dict[str, str], tmp_path_factory: Any, refused: Refused
) -> None:
    own = EmbeddedRedis(tmp_path_factory.mktemp("redis"), password="secret", durable=False)
    own.start()
    ingress = start_ingress({"heartbeat_s": 0.5}, REDIS_URL=own.url)
    from_fixture = httpx2.AsyncClient(base_url=ingress.url, timeout=20)
    try:
        async with from_fixture as http, asyncio.timeout(60):
            made = await http.post(f"{BASE}/new/messages", json={"text": "hello"})
            conversation = made.json()["conversation_id"]
            async with http.stream("GET", f"{BASE}/{conversation}/events") as response:
                lines = response.aiter_lines()
                await wait_for(lines, "event: stream_snapshot")
                own.stop()
                await wait_for(lines, ": ping", count=3)
                answer = await http.post(f"{BASE}/new/messages", json={"text": "no"})
                assert "Retry-After" in answer.headers
                refused(answer, 503)
                assert (await http.get("/readyz")).json()["parts"]["redis"]["ok"] is False
                own.start()
                await wait_for(lines, "event: stream_gap")
                await wait_for(lines, "event: stream_snapshot")
                async with open_redis_drivers(own.url, name="test") as redis_drivers:
                    await publish_one(redis_drivers, conversation)
                await wait_for(lines, "event: conv_title")
    finally:
        own.stop()


async def wait_for(lines: Any, wanted: str, *, count: int = 1) -> None:
    async for line in lines:
        count -= line == wanted
        if not count:
            return
    raise AssertionError(f"the stream ended before {wanted}")


async def publish_one(redis_drivers: RedisDrivers, conversation: str) -> None:
    from_worker = EventCursor(1, 1)
    payload = f'{{"id":"1-1","type":"conv.title","ts":"t","conversation_id":"{conversation}","data":{{"title":"x"}}}}'
    event = EncodedEvent(from_worker, "conv.title", payload.encode())
    await redis_drivers.event_writer.publish(
        ConversationId(conversation), Entry(EventCursor(0, 0), (event,)), after=None
    )
