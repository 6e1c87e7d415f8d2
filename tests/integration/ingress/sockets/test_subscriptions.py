"""Following conversations: replay, order, and the ends of a subscription."""

import json
from typing import Any

import httpx2
from helpers.event_examples import EXAMPLES

from everturn.events.model import ChatSignal, ConvStatus

FOLLOWUP: dict[str, Any] = {"signal_id": "sig_9", "kind": "followup", "state": "applied", "text": "More."}
FOREIGN = "conv_01890a5d-ac96-774b-bcce-b302099a8057"


async def test_a_socket_and_a_stream_from_the_same_cursor_get_the_same_events(
    socket: Any, chat: Any, follow: Any, worker: Any
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    ids = [each for n in range(20) for each in await worker.say(conversation, f"{n}a", f"{n}b")]

    for cut in (None, ids[0], ids[7], "0-0"):
        payload = {"conversation_id": conversation} | ({"after": cut} if cut else {})
        await socket.call("conv_subscribe", payload)
        live = (await worker.say(conversation, "live"))[0]
        over_socket = [event async for event in read_socket(socket, live)]
        async with follow(conversation, **({"after": cut} if cut else {})) as stream:
            over_sse = [event async for event in read_stream(stream, live)]
        await socket.call("conv_unsubscribe", {"conversation_id": conversation})

        assert over_socket == over_sse


async def read_socket(socket: Any, last: str) -> Any:
    """Names and ids up to the event `last`, hints left out."""
    while True:
        name, envelope = await socket.next()
        if name in ("ready", "stream_snapshot") or envelope.get("id"):
            yield name, envelope.get("id"), envelope["data"].get("text")
        if envelope.get("id") == last:
            return


async def read_stream(stream: Any, last: str) -> Any:
    while True:
        frame = await stream.next()
        if frame.data and (frame.event in ("ready", "stream_snapshot") or frame.data.id):
            yield frame.event, frame.data.id, getattr(frame.data.data, "text", None)
        if frame.id == last:
            return


async def test_a_socket_gets_the_steps_view_as_a_stream_does(
    socket: Any, chat: Any, worker: Any, client: httpx2.AsyncClient
) -> None:
    sent = await chat.send("hello")
    conversation, turn_id = sent["conversation_id"], sent["turn_id"]
    await worker.claim(conversation)
    ids = [each for data in EXAMPLES[1:-3] for each in await worker.publish(conversation, data, turn_id=turn_id)]

    for cut in (None, "0-0", ids[0], ids[9]):
        after = {} if cut is None else {"after": cut}
        answer = await socket.call("conv_subscribe", {"conversation_id": conversation, "view": "steps", **after})
        (last,) = await worker.publish(conversation, ChatSignal(**FOLLOWUP), turn_id=turn_id)
        over_socket = [event async for event in read_socket_steps(socket, last)]
        url = f"/conversations/default/default/{conversation}/events"
        async with client.stream("GET", url, params={"view": "steps", **after}) as response:
            over_sse = [event async for event in read_sse_steps(response, last)]
        await socket.call("conv_unsubscribe", {"conversation_id": conversation})

        assert answer["body"] == {"conversation_id": conversation, "after": cut, "view": "steps"}
        assert over_socket == over_sse
        assert {name for name, _ in over_socket} >= {"ready", "inject"}


async def test_an_unknown_view_is_refused(socket: Any, chat: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    for view in ("ag-ui", "", "STEPS", None, 1):
        refused = await socket.call("conv_subscribe", {"conversation_id": conversation, "view": view})
        assert refused["status"] == 422
        assert "view" in str(refused["body"])


async def read_socket_steps(socket: Any, last: str) -> Any:
    """Names and payloads up to the event `last`, without phases, which hints repeat."""
    while True:
        name, data = await socket.next()
        if name not in ("session_info", "phase"):
            yield name, data
        if data.get("id") == last:
            return


async def read_sse_steps(response: httpx2.Response, last: str) -> Any:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: ") and name != "phase":
            yield name, json.loads(line.removeprefix("data: "))
        elif line == f"id: {last}":
            return


async def test_foreign_conversations_and_bad_cursors_are_refused_as_over_sse(
    socket: Any, sockets: Any, chat: Any
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    stranger = await sockets().connect(headers={"X-Dev-User": "stranger"})

    foreign = await stranger.call("conv_subscribe", {"conversation_id": conversation})
    absent = await socket.call("conv_subscribe", {"conversation_id": FOREIGN})
    bad = await socket.call("conv_subscribe", {"conversation_id": conversation, "after": "x"})
    future = await socket.call("conv_subscribe", {"conversation_id": conversation, "after": "999-1"})

    assert [each["status"] for each in (foreign, absent, bad, future)] == [404, 404, 400, 400]
    assert foreign == absent


async def test_a_conversation_that_is_not_followed_can_not_be_left(socket: Any, chat: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    assert (await socket.call("conv_unsubscribe", {"conversation_id": conversation}))["status"] == 404


async def test_only_so_many_conversations_are_followed_at_once(sockets: Any, chat: Any) -> None:
    base = "/conversations/default/default"
    made = [(await chat.http.post(base, json={})).json()["conversation_id"] for _ in range(33)]
    socket = await sockets().connect()

    statuses = [(await socket.call("conv_subscribe", {"conversation_id": each}))["status"] for each in made]

    assert statuses == [200] * 32 + [429]


async def test_an_erased_conversation_is_followed_no_more(socket: Any, chat: Any) -> None:
    conversation = (await chat.http.post("/conversations/default/default", json={})).json()["conversation_id"]
    await socket.call("conv_subscribe", {"conversation_id": conversation})
    await socket.until("stream_snapshot")

    await chat.http.delete(f"/conversations/default/default/{conversation}")

    end = await socket.until("conv_unsubscribed")
    assert (end["conversation_id"], end["status"]) == (conversation, 404)


async def test_a_socket_reports_the_falling_position_of_a_waiting_turn(socket: Any, chat: Any, worker: Any) -> None:
    first, second = [await chat.send("hello") for _ in range(2)]
    sent = (await socket.call("chat_message", {"conversation_id": "new", "text": "hello"}))["body"]
    mine, at = sent["conversation_id"], first["receipt"]["position"]

    await socket.call("conv_subscribe", {"conversation_id": mine})
    seen: list[tuple[str, int | None]] = []
    for taken in (first["conversation_id"], second["conversation_id"], mine):
        status = (await socket.until("conv_status"))["data"]
        assert status["turn_id"] == sent["turn_id"]
        seen.append((status["state"], status["position"]))
        await worker.claim(taken)
    await worker.publish(mine, ConvStatus(state="running", turn_id=sent["turn_id"]))
    running = (await socket.until("conv_status"))["data"]

    assert sent["receipt"]["position"] == at + 2
    assert seen == [("queued", at + 2), ("queued", at + 1), ("queued", at)]
    assert running["state"] == "running"
    assert "position" not in running
