"""Forking, exporting and erasing conversations over HTTP."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from helpers.questions import ask_a_person

from everturn.events.cursor import EventCursor
from everturn.lifecycle.export_check import check_export
from everturn.postgres.pool import Database
from everturn.turns.postgres_leases import PostgresLeases
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_testing.turns.harness import closing

BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]


async def test_an_export_is_whole_and_has_no_bytes_of_files(client: httpx2.AsyncClient, chat: Any) -> None:
    files = [{"filename": "a.csv", "data_base64": base64.b64encode(b"a,secret\n").decode()}]
    conversation = (await chat.send("hello", attachments=files))["conversation_id"]

    answer = await client.get(f"{BASE}/{conversation}/export")

    report = check_export(answer.content.splitlines(keepends=True))
    assert (report.conversation_id, report.end.artifacts) == (conversation, 1)
    assert answer.headers["content-disposition"] == f'attachment; filename="{conversation}.jsonl"'
    assert b"a,secret" not in answer.content


async def test_only_the_owner_exports(client: httpx2.AsyncClient, chat: Any, refused: Refused) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    refused(await client.get(f"{BASE}/{conversation}/export", headers={"X-Dev-User": "bob"}), 404)
    refused(await client.get(f"/conversations/default/other/{conversation}/export"), 404)
    refused(await client.get(f"{BASE}/new/export"), 404)


def stored_files(objects_url: str, conversation: str) -> list[Path]:
    everything = Path(urlsplit(objects_url).path).rglob("*")
    return [path for path in everything if path.is_file() and conversation in str(path)]


async def end_turn(worker_database: Database, sent: dict[str, Any]) -> None:
    """Claim the turn and end it, as a worker does."""
    leases, timelines = PostgresLeases(worker_database, owner="w"), PostgresTimelines(worker_database)
    claim = await leases.try_claim(sent["conversation_id"])
    assert claim is not None
    await timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
    await leases.mark_announced(claim.lease, sent["turn_id"], EventCursor(claim.lease.fence, 9))
    await leases.release(claim.lease, requeue=False)


async def test_a_fork_outlives_its_source_with_its_files(
    client: httpx2.AsyncClient, chat: Any, worker_database: Database, ingress_env: dict[str, str]
) -> None:
    files = [{"filename": "a.csv", "data_base64": base64.b64encode(b"a,b\n").decode()}]
    sent = await chat.send("hello", attachments=files)
    await end_turn(worker_database, sent)
    headers = {"Idempotency-Key": "fork-1"}

    made = [
        await client.post(f"{BASE}/{sent['conversation_id']}/fork", json={"title": "Again"}, headers=headers)
        for _ in range(2)
    ]
    fork = made[0].json()["conversation_id"]
    erased = (await client.delete(f"{BASE}/{sent['conversation_id']}")).json()

    assert [answer.status_code for answer in made] == [201, 201], made[0].text
    assert made[0].json() == made[1].json()
    assert (made[0].json()["forked_from"], made[0].json()["turns"]) == (sent["conversation_id"], 1)
    assert (erased["objects"], erased["objects_left"]) == (0, 0)
    state = await chat.state(fork)
    assert state["conversation"]["title"] == "Again"
    (file,) = state["turns"][0]["attachments"]
    assert (await client.get(file["url"])).content == b"a,b\n"
    report = check_export((await client.get(f"{BASE}/{fork}/export")).content.splitlines(keepends=True))
    assert report.end.artifacts == 1
    last = (await client.delete(f"{BASE}/{fork}")).json()
    assert last["objects"] == 1
    assert not stored_files(ingress_env["OBJECTS_URL"], sent["conversation_id"])


async def test_what_can_not_be_forked_is_refused(client: httpx2.AsyncClient, chat: Any, refused: Refused) -> None:
    sent = await chat.send("hello")
    url = f"{BASE}/{sent['conversation_id']}/fork"

    refused(await client.post(url, json={}), 409)
    refused(await client.post(url, json={"turn_id": sent["turn_id"]}), 409)
    refused(await client.post(url, json={"turn_id": "turn_x"}), 404)
    refused(await client.post(url, json={"title": "a\nb"}), 422)
    refused(await client.post(url, json={"more": 1}), 422)
    refused(await client.post(url, json={}, headers={"X-Dev-User": "bob"}), 404)
    refused(await client.post(url, content=b"{}"), 415)


async def test_a_waiting_conversation_is_listed_forked_exported_and_erased(
    client: httpx2.AsyncClient, chat: Any, worker_database: Database, refused: Refused
) -> None:
    sent = await chat.send("hello")
    await end_turn(worker_database, sent)
    waiting = await chat.send("send the mail", sent["conversation_id"])
    url, yes = f"{BASE}/{sent['conversation_id']}", {"kind": "approve"}
    yes["approval_id"] = await ask_a_person(worker_database, waiting)

    listed = (await client.get(BASE, params={"state": "waiting"})).json()
    fork = (await client.post(f"{url}/fork", json={})).json()
    refused(await client.post(f"{url}/fork", json={"turn_id": waiting["turn_id"]}), 409)
    exported = await client.get(f"{url}/export")

    assert sent["conversation_id"] in [each["conversation_id"] for each in listed["items"]]
    forked = await chat.state(fork["conversation_id"])
    assert (fork["turns"], forked["conversation"]["state"]) == (1, "idle")
    refused(await client.post(f"{BASE}/{fork['conversation_id']}/signals", json=yes), 404)
    assert check_export(exported.content.splitlines(keepends=True)).end.blocks == 2
    assert b"approval.request" in exported.content
    erased = (await client.delete(url)).json()
    assert (erased["rows"]["approval"], erased["rows"]["turn"]) == (1, 2)
    refused(await client.post(f"{url}/signals", json=yes), 404)
    refused(await client.get(url), 404)
    assert (await client.get(BASE, params={"state": "waiting"})).json()["items"] == []
