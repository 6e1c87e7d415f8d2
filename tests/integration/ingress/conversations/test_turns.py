"""Reading turns back."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from everturn.core.ids import CallId
from everturn.core.refs import call_ref, round_ref
from everturn.postgres.pool import Database
from everturn.timeline.blocks import BlockDraft, BlockType, ToolCallBody, ToolCodeBody, chain_blocks
from everturn.turns.ports import PAGE_BYTES
from everturn.turns.postgres_leases import PostgresLeases
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_testing.turns.harness import closing, commit

BASE = "/conversations/default/default"
ABSENT = "01890a5d-ac96-774b-bcce-b302099a8057"
Refused = Callable[..., dict[str, Any]]


async def test_a_turn_equals_that_of_fetch_and_has_its_position(client: httpx2.AsyncClient, chat: Any) -> None:
    sent = await chat.send("hello")

    turn = await client.get(f"{BASE}/{sent['conversation_id']}/turns/{sent['turn_id']}")
    named = await client.post(
        f"{BASE}/fetch", json={"conversation_id": sent["conversation_id"], "turn_ids": [sent["turn_id"]]}
    )

    shown = turn.json()
    assert shown.pop("position") >= 0
    assert shown == named.json()["turns"][0] == (await chat.state(sent["conversation_id"]))["turns"][0]


async def test_a_materialized_fetch_contains_the_documents(client: httpx2.AsyncClient, chat: Any) -> None:
    sent = await chat.send("hello")
    asked = {"conversation_id": sent["conversation_id"]}

    plain = (await client.post(f"{BASE}/fetch", json=asked)).json()
    whole = (await client.post(f"{BASE}/fetch", json={**asked, "materialize": True})).json()

    assert "artifacts" not in plain
    artifacts = whole.pop("artifacts")
    assert whole == plain
    timeline = artifacts["conv.timeline.v1"]
    assert (timeline["version"], timeline["turn_ids"], timeline["sources_pool"]) == (1, [sent["turn_id"]], [])
    assert [log["turn_id"] for log in artifacts["turn.log"]] == [sent["turn_id"]]


async def test_a_step_is_read_back_with_its_whole_program(
    client: httpx2.AsyncClient, chat: Any, refused: Refused, worker_database: Database
) -> None:
    sent = await chat.send("hello")
    claim = await PostgresLeases(worker_database, owner="w").try_claim(sent["conversation_id"])
    assert claim is not None
    program = "print(1)\n" * 1_000
    body, call = ToolCodeBody(text=program), ToolCallBody(tool_id="exec_tools.run", params={"prog_name": "count"})
    drafts = [
        BlockDraft(sent["turn_id"], 1, kind, ref, content, "2026-03-01T12:00:00.000Z", call_id=CallId("call_1"))
        for kind, ref, content in (
            (BlockType.TOOL_CODE, round_ref(sent["turn_id"], 1, "code"), body),
            (BlockType.TOOL_CALL, call_ref(sent["turn_id"], "call_1"), call),
        )
    ]
    blocks = chain_blocks(drafts, next_seq=claim.next_seq, last_hash=claim.last_hash)
    await PostgresTimelines(worker_database).commit(claim.lease, commit(claim, blocks))
    url = f"{BASE}/{sent['conversation_id']}/turns/{sent['turn_id']}"

    (shown,) = (await client.get(url)).json()["steps"]
    whole = (await client.get(f"{url}/steps/{shown['step']}")).json()

    assert (shown["title"], shown["code"], shown["code_chars"]) == ("count", program[:4_000], len(program))
    assert (whole["code"], whole["status"], whole["code_ref"]) == (program, "started", blocks[0].ref)
    for absent in ("call_2", "x" * 200):
        refused(await client.get(f"{url}/steps/{absent}"), 404)
    refused(await client.get(f"{url}/steps/call_1", headers={"X-Dev-User": "bob"}), 404)


async def test_absent_and_foreign_turns_are_the_same_404(
    client: httpx2.AsyncClient, chat: Any, refused: Refused
) -> None:
    mine, other = await chat.send("a"), await chat.send("b")
    conversation = mine["conversation_id"]
    paths = [f"turn_{ABSENT}", other["turn_id"], "x", "turn_*", "%00"]

    answers = [refused(await client.get(f"{BASE}/{conversation}/turns/{path}"), 404) for path in paths]

    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"conversation_id": "x"}, 404),
        ({"conversation_id": f"conv_{ABSENT}"}, 404),
        ({"conversation_id": 7}, 422),
        ({"conversation_id": f"conv_{ABSENT}", "turn_ids": ["x"]}, 404),
        ({"conversation_id": f"conv_{ABSENT}", "limit": 0}, 422),
        ({"conversation_id": f"conv_{ABSENT}", "materialize": True}, 404),
        ({"conversation_id": f"conv_{ABSENT}", "materialized": True}, 422),
    ],
)
async def test_bad_fetches_are_refused(
    client: httpx2.AsyncClient, refused: Refused, body: dict[str, Any], status: int
) -> None:
    refused(await client.post(f"{BASE}/fetch", json=body), status)


async def test_an_invalid_cursor_is_refused(client: httpx2.AsyncClient, chat: Any, refused: Refused) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    refused(await client.post(f"{BASE}/fetch", json={"conversation_id": conversation, "cursor": ""}), 422)
    for cursor in ("x", "-1", "1e3", "\u0661", "9" * 30, "\x00", "2"):
        refused(await client.post(f"{BASE}/fetch", json={"conversation_id": conversation, "cursor": cursor}), 400)


async def test_rated_turns_are_listed_with_their_feedback(client: httpx2.AsyncClient, chat: Any) -> None:
    sent = await chat.send("hello")
    url = f"{BASE}/{sent['conversation_id']}"

    before = await client.post(f"{url}/turns-with-feedbacks", json={})
    await client.post(f"{url}/turns/{sent['turn_id']}/feedback", json={"reaction": "ok", "text": "good"})
    after = await client.post(f"{url}/turns-with-feedbacks", json={"turn_ids": [sent["turn_id"]]})

    assert before.json()["turns"] == []
    (turn,) = after.json()["turns"]
    assert turn["feedback"][0]["reaction"] == "ok"


async def test_pages_end_at_their_size_and_continue_at_their_cursor(
    client: httpx2.AsyncClient,
    chat: Any,
    refused: Refused,
    worker_database: Database,
) -> None:
    text = "\U0001f600" * (PAGE_BYTES // 7)
    leases, timelines = PostgresLeases(worker_database, owner="w"), PostgresTimelines(worker_database)
    first = await chat.send(text)
    conversation = first["conversation_id"]
    claim = await leases.try_claim(conversation)
    assert claim is not None
    await timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
    await leases.release(claim.lease, requeue=False)
    second = await chat.send(text, conversation)
    for sent in (first, second):
        await client.post(f"{BASE}/{conversation}/turns/{sent['turn_id']}/feedback", json={"reaction": "ok"})
    reads = {f"{BASE}/fetch": {"conversation_id": conversation}, f"{BASE}/{conversation}/turns-with-feedbacks": {}}

    for path, body in reads.items():
        newest = (await client.post(path, json=body)).json()
        oldest = (await client.post(path, json={**body, "cursor": newest["next_cursor"]})).json()
        pages = [[turn["turn_id"] for turn in page["turns"]] for page in (newest, oldest)]
        assert pages == [[second["turn_id"]], [first["turn_id"]]]
        assert "next_cursor" not in oldest
        for cursor in ("x", "3"):
            refused(await client.post(path, json={**body, "cursor": cursor}), 400)


async def test_the_index_of_a_turn_is_read(client: httpx2.AsyncClient, chat: Any) -> None:
    sent = await chat.send("hello")

    index = await client.get(f"{BASE}/{sent['conversation_id']}/turns/{sent['turn_id']}/index")

    assert index.status_code == 200
    assert index.json()["ref"] == f"ar:{sent['turn_id']}.react.turn.index"
    assert index.json()["tools"] == []


async def test_the_index_of_an_absent_or_foreign_turn_is_a_404(
    client: httpx2.AsyncClient, chat: Any, refused: Refused
) -> None:
    mine, other = await chat.send("a"), await chat.send("b")

    for turn in (f"turn_{ABSENT}", other["turn_id"], "x"):
        refused(await client.get(f"{BASE}/{mine['conversation_id']}/turns/{turn}/index"), 404)
