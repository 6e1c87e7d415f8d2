"""Conversations whose codec changes with every turn, while workers die at each border."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest
from helpers.forks import WORKER_BOUNDS
from helpers.slow import choose
from platform_harness.harness import Harness

from everturn.lifecycle.export_check import check_export

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

FOLDER = Path(__file__).parent
EXTRA_ENV = {
    WORKER_BOUNDS: '{"lease_s": 4, "orphans_after_s": 4}',
    "WORKER_SLOTS": "1",
    "EVERTURN_MODEL": f"scripted:{FOLDER / 'codec_scripts.toml'}",
    "EVERTURN_CONFIG": str(FOLDER / "codecs.toml"),
}
WORKERS = ("worker-1", "worker-2")
BORDERS = [
    ("turn.claimed:1", "turn.opened:1"),
    ("turn.before_first_token:1", "turn.mid_stream:3"),
    ("turn.before_c1:1", "turn.after_c1:1"),
    ("turn.in_tool:1", "turn.in_tool:2"),
    ("turn.before_c2:1", "turn.after_c2:1"),
    ("turn.before_c2:2", "turn.after_c2:2"),
    ("turn.after_c1:2", "turn.mid_stream:9"),
    ("turn.before_c3:1", "turn.after_c3:1"),
    ("turn.published:1", "turn.announced:1"),
]
ANSWERS = {"channels": "Looked by channels.", "native": "Looked by native calls.", "json": "Looked by JSON."}


async def play(harness: Harness, conversation: str, codec: str) -> Any:
    return await harness.clients[0].send_message(conversation, f"script:{codec} please", bundle_id=codec)


async def check_inputs(harness: Harness, conversation_id: str, turn_id: str, rounds: int) -> None:
    """The exact input of each round can be read back. Of a round whose worker died, it may not have been kept."""
    kept = 0
    async with httpx2.AsyncClient(base_url=harness.platform.urls[0], timeout=30) as http:
        for number in range(1, rounds + 1):
            path = f"/conversations/default/default/{conversation_id}/turns/{turn_id}/rounds/{number}/context"
            answer = await http.get(path, params={"limit": 500})
            if answer.status_code != 404:
                kept += 1
                assert [part for part in answer.json()["segments"] if part["text"] is None] == []
    assert kept >= rounds - 1


@pytest.mark.parametrize("failpoints", choose(BORDERS), ids=" ".join)
async def test_turns_under_any_codec_survive_their_workers(
    harness: Harness, failpoints: tuple[str, str], tmp_path: Path
) -> None:
    """One turn with native calls, one with JSON; the turns before and after them have other codecs."""
    opened = [await play(harness, "new", "channels") for _ in range(2)]
    watchers = [harness.watch(each.conversation_id, ingress=n) for n, each in enumerate(opened)]
    for each, watcher in zip(opened, watchers, strict=True):
        await watcher.wait_ended(each.turn_id)
    harness.platform.auto_restart = False
    await asyncio.gather(
        *(
            harness.platform.restart(worker, extra_env={"FAILPOINT": f"{failpoint}:kill"})
            for worker, failpoint in zip(WORKERS, failpoints, strict=True)
        )
    )

    killed = ("native", "json")
    sent = [await play(harness, each.conversation_id, codec) for each, codec in zip(opened, killed, strict=True)]
    for worker in WORKERS:
        assert await harness.platform.wait_exit(worker) == -signal.SIGKILL
    await asyncio.gather(*(harness.platform.restart(worker) for worker in WORKERS))

    ended = [await watcher.wait_ended(each.turn_id) for each, watcher in zip(sent, watchers, strict=True)]
    for turn, codec in zip(ended, killed, strict=True):
        assert (turn.outcome, turn.answer) == ("completed", ANSWERS[codec])
        assert sorted(text.artifact for text in turn.texts if text.channel == "canvas") in (
            [["files/a.md", "files/b.md"]] if codec == "native" else [["files/a.md"]]
        )
        assert {step.status for step in turn.steps} == {"completed"}
    for each, watcher, codec, other in zip(opened, watchers, killed, reversed(killed), strict=True):
        last = await play(harness, each.conversation_id, other)
        assert (await watcher.wait_ended(last.turn_id)).answer == ANSWERS[other]
        state = await harness.check_invariants(each.conversation_id, watcher)
        assert [turn.answer for turn in state.turns] == [ANSWERS["channels"], ANSWERS[codec], ANSWERS[other]]
        for turn in state.turns:
            await check_inputs(harness, each.conversation_id, turn.turn_id, turn.rounds)
        exported = await harness.clients[0].export_conversation(each.conversation_id, tmp_path / each.conversation_id)
        check_export(exported.read_bytes().splitlines(keepends=True))
    await harness.close()
