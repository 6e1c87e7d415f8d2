"""Signals and their receipts."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from helpers.questions import ask_a_person

from everturn.postgres.pool import Database
from everturn.turns.inbox import MAX_OPEN_SIGNALS

BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]


async def post(client: httpx2.AsyncClient, conversation: str, **body: Any) -> httpx2.Response:
    return await client.post(f"{BASE}/{conversation}/signals", json=body)


async def test_a_signal_goes_into_the_open_turn_and_its_receipt_can_be_read(
    client: httpx2.AsyncClient, chat: Any
) -> None:
    first = await chat.send("hello")

    answer = await post(client, first["conversation_id"], kind="steer", text="shorter")

    assert answer.status_code == 202
    accepted = answer.json()
    assert (accepted["turn_id"], accepted["receipt"]) == (first["turn_id"], {"state": "accepted"})
    url = f"{BASE}/{first['conversation_id']}/signals/{accepted['signal_id']}"
    signal = (await client.get(url)).json()["signal"]
    assert (signal["kind"], signal["text"], signal["state"]) == ("steer", "shorter", "accepted")


async def test_a_signal_is_edited_and_retracted_until_it_is_applied(
    client: httpx2.AsyncClient, chat: Any, refused: Refused
) -> None:
    first = await chat.send("hello")
    accepted = (await post(client, first["conversation_id"], kind="followup", text="a")).json()
    url = f"{BASE}/{first['conversation_id']}/signals/{accepted['signal_id']}"

    edited = await client.patch(url, json={"text": "b"})
    retracted = [await client.delete(url) for _ in range(2)]

    assert edited.json()["signal"]["text"] == "b"
    assert [answer.json()["signal"]["state"] for answer in retracted] == ["retracted", "retracted"]
    refused(await client.patch(url, json={"text": "c"}), 409)


async def test_an_idle_conversation_accepts_no_signal(client: httpx2.AsyncClient, refused: Refused) -> None:
    resting = (await client.post(BASE, json={})).json()["conversation_id"]

    refused(await post(client, resting, kind="cancel"), 409)


async def test_an_approval_is_answered_once_and_by_its_owner(
    client: httpx2.AsyncClient, chat: Any, worker_database: Database, refused: Refused
) -> None:
    sent = await chat.send("send the mail")
    url, approval_id = f"{BASE}/{sent['conversation_id']}/signals", await ask_a_person(worker_database, sent)
    yes = {"kind": "approve", "approval_id": approval_id}
    (asked,) = (await chat.state(sent["conversation_id"]))["turns"][0]["approvals"]

    refused(await client.post(url, json=yes, headers={"X-Dev-User": "bob"}), 404)
    refused(await client.post(url, json={**yes, "approval_id": f"{approval_id}0"}), 404)
    refused(await client.post(url, json={**yes, "target_turn_id": (await chat.send("else"))["turn_id"]}), 409)
    first, again = [await client.post(url, json=yes) for _ in range(2)]
    refused(await client.post(url, json={**yes, "kind": "deny"}), 409)

    assert (asked["approval_id"], asked["tool_id"], asked["state"]) == (approval_id, "mail.send", "pending")
    assert (first.status_code, first.json()["turn_id"]) == (202, sent["turn_id"])
    assert again.json() == first.json()
    answer = f"{url}/{first.json()['signal_id']}"
    assert (await client.get(answer)).json()["signal"]["approval_id"] == approval_id
    refused(await client.patch(answer, json={"text": "no"}), 409)
    refused(await client.delete(answer), 409)


async def test_an_empty_followup_is_refused_and_an_empty_steer_stops(
    client: httpx2.AsyncClient, chat: Any, refused: Refused
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    for text in (" ", "\u200b\U000e0041"):
        refused(await post(client, conversation, kind="followup", text=text), 422)
    assert (await post(client, conversation, kind="steer")).status_code == 202


async def test_an_edit_to_nothing_is_refused(client: httpx2.AsyncClient, chat: Any, refused: Refused) -> None:
    first = await chat.send("hello")
    accepted = (await post(client, first["conversation_id"], kind="followup", text="a")).json()

    url = f"{BASE}/{first['conversation_id']}/signals/{accepted['signal_id']}"
    for text in (" ", "\u200b\U000e0041"):
        refused(await client.patch(url, json={"text": text}), 422)


async def test_concurrent_cancels_and_steers_are_all_accepted(client: httpx2.AsyncClient, chat: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    answers = await asyncio.gather(
        *(post(client, conversation, kind="cancel") for _ in range(5)),
        *(post(client, conversation, kind="steer", text="x") for _ in range(5)),
    )

    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["signal_id"] for answer in answers}) == 10


async def test_a_signal_repeated_with_its_key_is_stored_once(client: httpx2.AsyncClient, chat: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    headers = {"Idempotency-Key": "sig-1"}

    answers = await asyncio.gather(
        *(client.post(f"{BASE}/{conversation}/signals", json={"kind": "cancel"}, headers=headers) for _ in range(5))
    )

    assert len({answer.text for answer in answers}) == 1


async def test_the_files_of_a_followup_are_listed_with_its_signal(client: httpx2.AsyncClient, chat: Any) -> None:
    first = await chat.send("hello")
    files = [{"filename": "a.csv", "mime": "text/csv", "data_base64": base64.b64encode(b"a,b\n").decode()}]

    accepted = await chat.send("see", first["conversation_id"], attachments=files)

    turn = (await chat.state(first["conversation_id"]))["turns"][0]
    file = turn["signals"][0]["attachments"][0]
    signal_id = accepted["signal_id"]
    assert file["ref"] == f"fi:{first['turn_id']}.external.followup.attachments/{signal_id}/a.csv"
    assert (await client.get(file["url"])).content == b"a,b\n"


@pytest.mark.parametrize(
    "body", [{"kind": "cancel", "attachments": [{"filename": "a.txt", "data_base64": "YQ=="}]}, {}]
)
async def test_invalid_signals_are_refused(
    client: httpx2.AsyncClient, chat: Any, refused: Refused, body: dict[str, Any]
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    refused(await client.post(f"{BASE}/{conversation}/signals", json=body), 422)


def event(**fields: Any) -> dict[str, Any]:
    return {"kind": "event", "text": "The form was sent.", "event": {"kind": "form", **fields}}


async def test_an_event_goes_into_the_open_turn_with_its_file(client: httpx2.AsyncClient, chat: Any) -> None:
    first = await chat.send("hello")
    files = [{"filename": "a.csv", "mime": "text/csv", "data_base64": base64.b64encode(b"a,b\n").decode()}]

    accepted = (await post(client, first["conversation_id"], **event(payload={"n": 1}), attachments=files)).json()

    assert (accepted["turn_id"], accepted["receipt"]) == (first["turn_id"], {"state": "accepted"})
    signal = (await chat.state(first["conversation_id"]))["turns"][0]["signals"][0]
    assert (signal["kind"], signal["event"]) == ("event", {"kind": "form", "reactive": True})
    ref = f"fi:{first['turn_id']}.external.form.attachments/{accepted['signal_id']}/a.csv"
    assert [file["ref"] for file in signal["attachments"]] == [ref]


async def test_an_event_accepts_files_as_multipart_too(client: httpx2.AsyncClient, chat: Any) -> None:
    first = await chat.send("hello")
    parts: list[Any] = [("message", (None, json.dumps(event()).encode(), "application/json"))]
    parts += [("files", (name, b"a,b\n", "text/csv")) for name in ("a.csv", "a.csv")]

    answer = await client.post(f"{BASE}/{first['conversation_id']}/signals", files=parts)

    assert answer.status_code == 202
    signal = (await chat.state(first["conversation_id"]))["turns"][0]["signals"][0]
    assert len({file["ref"] for file in signal["attachments"]}) == 2


async def test_a_reactive_event_starts_a_turn_in_an_idle_conversation(client: httpx2.AsyncClient, chat: Any) -> None:
    resting = (await client.post(BASE, json={})).json()["conversation_id"]

    accepted = (await post(client, resting, **event())).json()

    assert (accepted["signal_id"], accepted["receipt"]["state"]) == (None, "queued")
    assert [turn["turn_id"] for turn in (await chat.state(resting))["turns"]] == [accepted["turn_id"]]


async def test_a_recorded_event_waits_for_the_next_turn(client: httpx2.AsyncClient, chat: Any) -> None:
    resting = (await client.post(BASE, json={})).json()["conversation_id"]

    accepted = (await post(client, resting, **event(reactive=False))).json()
    url = f"{BASE}/{resting}/signals/{accepted['signal_id']}"
    waiting = (await client.get(url)).json()
    opened = await chat.send("hello", resting)
    taken = (await client.get(url)).json()

    assert (accepted["turn_id"], accepted["receipt"]) == (None, {"state": "queued"})
    assert (waiting["turn_id"], waiting["signal"]["state"]) == (None, "queued")
    assert (taken["signal"]["state"], taken["signal"]["promoted_to"]) == ("promoted", opened["turn_id"])


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        (event() | {"event": {"kind": "earthquake"}}, 422, "event.kind"),
        (event() | {"event": {"kind": "Not a kind"}}, 422, "event.kind"),
        (event() | {"event": {"kind": "followup"}}, 422, "event.kind"),
        ({"kind": "event", "text": "x"}, 422, "event"),
        ({"kind": "steer", "text": "x", "event": {"kind": "form"}}, 422, "event"),
        (event(iteration_credit=99), 422, "iteration_credit"),
        (event(payload={"x": "y" * 20_000}), 413, "payload"),
        (event(payload=[1]), 422, "payload"),
        (event(surprise=1), 422, "surprise"),
    ],
)
async def test_an_invalid_event_is_refused_and_the_problem_names_the_field(
    client: httpx2.AsyncClient, chat: Any, refused: Refused, body: dict[str, Any], status: int, named: str
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    problem = refused(await client.post(f"{BASE}/{conversation}/signals", json=body), status)

    assert named in json.dumps(problem)
    assert (await chat.state(conversation))["turns"][0]["signals"] == []


async def test_a_signal_for_a_turn_of_another_conversation_is_refused(
    client: httpx2.AsyncClient, chat: Any, refused: Refused
) -> None:
    first, other = await chat.send("hello"), await chat.send("hello")
    resting = (await client.post(BASE, json={})).json()["conversation_id"]

    for conversation in (first["conversation_id"], resting):
        for body in ({"kind": "followup", "text": "x"}, {"kind": "cancel"}, event()):
            answer = await post(client, conversation, **body, target_turn_id=other["turn_id"])
            refused(answer, 409)


async def test_a_message_for_a_turn_of_another_conversation_is_refused(
    client: httpx2.AsyncClient, chat: Any, refused: Refused
) -> None:
    other = await chat.send("hello")
    resting = (await client.post(BASE, json={})).json()["conversation_id"]

    body = {"text": "x", "target_turn_id": other["turn_id"]}
    refused(await client.post(f"{BASE}/{resting}/messages", json=body), 409)


async def test_more_signals_than_a_turn_accepts_are_refused_with_retry_after(
    client: httpx2.AsyncClient, chat: Any, refused: Refused
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    for _ in range(MAX_OPEN_SIGNALS):
        assert (await post(client, conversation, kind="followup", text="x")).status_code == 202

    answer = await post(client, conversation, **event())

    refused(answer, 429)
    assert int(answer.headers["retry-after"]) > 0
    assert (await post(client, conversation, kind="cancel")).status_code == 202
