"""Socket.IO against a real ingress: connecting, calling, following."""

from typing import Any

import httpx2
from helpers.sockets import SocketClient

BASE = "/conversations/default/default"


async def test_a_joined_client_receives_its_identity_and_rights(socket: Any) -> None:
    name, info = await socket.next()

    assert name == "session_info"
    assert (info["user_id"], info["tenant"], info["project"]) == ("dev", "default", "default")
    assert info["limits"]["files"] == 20


async def test_a_message_over_a_socket_is_the_message_over_rest(socket: Any, chat: Any) -> None:
    answer = await socket.call("chat_message", {"conversation_id": "new", "text": "hello"})

    assert answer["status"] == 202
    state = await chat.state(answer["body"]["conversation_id"])
    assert [turn["text"] for turn in state["turns"]] == ["hello"]
    assert answer["body"]["turn_id"] == state["turns"][0]["turn_id"]


async def test_files_come_as_attachments_through_the_same_checks(socket: Any, chat: Any) -> None:
    files = [{"filename": "a.csv", "mime": "text/csv", "data": b"name,sum\na,1\n"}]

    taken = await socket.call("chat_message", {"conversation_id": "new", "text": "sum", "files": files})
    refused = await socket.call(
        "chat_message",
        {
            "conversation_id": "new",
            "text": "x",
            "files": [*files, {"filename": "a.zip", "mime": "", "data": b"PK\x03\x04" + bytes(40)}],
        },
    )

    (turn,) = (await chat.state(taken["body"]["conversation_id"]))["turns"]
    assert [file["filename"] for file in turn["attachments"]] == ["a.csv"]
    assert refused["status"] == refused["body"]["status"] == 415
    assert "a.zip" in refused["body"]["detail"]
    assert refused["body"]["errors"][0]["field"] == "body.files.1"


async def test_a_retry_over_rest_gets_the_answer_that_the_socket_got(socket: Any, chat: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    payload = {"conversation_id": conversation, "text": "again", "kind": "followup", "idempotency_key": "key-1"}
    headers = {"Idempotency-Key": "key-1"}

    first = await socket.call("chat_message", payload)
    rest = await chat.http.post(
        f"{BASE}/{conversation}/messages", json={"text": "again", "kind": "followup"}, headers=headers
    )
    other = await chat.http.post(f"{BASE}/{conversation}/messages", json={"text": "other"}, headers=headers)

    assert rest.json() == first["body"]
    assert rest.status_code == first["status"] == 202
    assert other.status_code == 422


async def test_events_of_a_followed_conversation_come_in_order(socket: Any, chat: Any, worker: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    ids = await worker.say(conversation, "a", "b", "c")

    answer = await socket.call("conv_subscribe", {"conversation_id": conversation, "after": ids[0]})
    later = await worker.say(conversation, "d")

    assert answer == {"status": 200, "body": {"conversation_id": conversation, "after": ids[0], "view": "native"}}
    assert [(await socket.until("chat_delta"))["id"] for _ in range(3)] == [*ids[1:], *later]


async def test_pages_and_credentials_pass_the_same_checks_as_over_http(sockets: Any, start_ingress: Any) -> None:
    production = start_ingress(
        EVERTURN_MODE="production",
        AUTH_ISSUER="i",
        AUTH_AUDIENCE="a",
        AUTH_SECRET="a secret that is long enough for HS256",
        ALLOWED_ORIGINS="https://chat.example",
        GUEST_SCOPES="default/default",
    )
    async with httpx2.AsyncClient(base_url=production.url, timeout=20) as http:
        guest = (await http.post("/guests/default/default")).json()
    stranger, listed = {"Origin": "https://evil.example"}, {"Origin": "https://chat.example"}
    here = {"tenant": "default", "project": "default"}

    let_in = await sockets(production.url).connect(headers=listed, token=guest["token"], **here)

    assert (await let_in.next())[1]["user_id"] == guest["user_id"]
    for headers, auth, status in (
        (stranger, {"token": guest["token"], **here}, 403),
        (listed, here, 401),
        (listed, {"token": guest["token"] + "x", **here}, 401),
        (listed, {"token": "evk_0123456789abcdef_" + "a" * 43, **here}, 401),
        (listed, {"token": guest["token"], **here, "tenant": "other"}, 404),
    ):
        assert (await sockets(production.url).refused(headers=headers, **auth))["status"] == status


async def test_calls_that_a_full_queue_refuses_take_no_tokens(sockets: Any, start_ingress: Any) -> None:
    full = start_ingress(RATE_LIMITS_WRITES="registered=4/h", QUEUE_MAX="1")
    client = await sockets(full.url).connect()

    answers = [await client.call("chat_message", {"conversation_id": "new", "text": "hello"}) for _ in range(7)]

    assert answers[0]["status"] in {202, 429}
    assert [answer["status"] for answer in answers[1:]] == [429] * 6


async def test_a_long_text_over_a_socket_is_read_once_and_whole(socket: SocketClient, chat: Any) -> None:
    text = "Я\n" * 400_000

    answer = await socket.call("chat_message", {"conversation_id": "new", "text": text})

    accepted = answer["body"]
    assert answer["status"] == 202, answer
    assert (await chat.state(accepted["conversation_id"]))["turns"][0]["text"] == text


async def test_a_call_above_the_json_cap_is_answered_and_the_socket_stays(socket: SocketClient) -> None:
    answer = await socket.call("chat_message", {"conversation_id": "new", "text": "a" * 8_000_000})

    assert answer["status"] == 413, answer
    assert (await socket.call("chat_message", {"conversation_id": "new", "text": "a"}))["status"] == 202


async def test_a_key_that_no_header_may_have_is_refused_as_over_rest(socket: SocketClient, chat: Any) -> None:
    over_rest = await chat.http.post(f"{BASE}/new/messages", json={"text": "a"}, headers={"Idempotency-Key": "x" * 201})

    for key in ("", "ä", "a\nb", "x" * 202):
        answer = await socket.call("chat_message", {"conversation_id": "new", "text": "a", "idempotency_key": key})
        assert answer["status"] == over_rest.status_code, (key, answer)
        assert answer["body"]["type"] == over_rest.json()["type"], (key, answer)
