"""F1: workers that die at each border of a turn; every test ends with the history checker.

Two die at a time, each in a turn of its own, because what takes long is the wait for their leases and successors.
"""

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers.forks import WORKER_BOUNDS
from helpers.slow import choose
from platform_harness.harness import Harness

from everturn.events.model import ChatCompaction
from everturn.events.views import TurnView
from everturn.timeline.blocks import BlockType
from everturn_local.servers.databases import DATABASE

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

EXTRA_ENV = {WORKER_BOUNDS: '{"lease_s": 4, "orphans_after_s": 4}', "WORKER_SLOTS": "1"}
"""One turn at a time, so that a worker that dies takes no other turn with it. The lease is longer than in other
tests, because two workers start at once, and one that can't renew in time would count as another death."""
WORKERS = ("worker-1", "worker-2")
TURNS = 12
LONG_CONVERSATION = "script:plain " + "word " * 24_000
SUMMARY = "## Active request\n- write a note\n## Done\n- a long conversation\n"
BORDERS = [
    ("turn.claimed:1", "turn.opened:1"),
    ("turn.before_first_token:1", "turn.mid_stream:7"),
    ("turn.before_c1:1", "turn.after_c1:1"),
    ("turn.in_tool:1", "turn.before_c2:1"),
    ("turn.after_c2:1", "turn.before_c3:1"),
    ("turn.after_c3:1", "turn.published:1"),
    ("turn.announced:1", "turn.after_c3:1"),
]


async def arm(harness: Harness, *failpoints: str, env: Mapping[str, str] | None = None) -> None:
    """Each worker dies at its failpoint and is not restarted automatically. `env` has further variables of workers."""
    harness.platform.auto_restart = False
    starts = [
        harness.platform.restart(worker, extra_env={**(env or {}), "FAILPOINT": f"{failpoint}:kill"})
        for worker, failpoint in zip(WORKERS, failpoints, strict=True)
    ]
    await asyncio.gather(*starts)


async def take_over(harness: Harness, env: Mapping[str, str] | None = None) -> None:
    """Once both were killed, others replace them."""
    for worker in WORKERS:
        assert await harness.platform.wait_exit(worker) == -signal.SIGKILL
    await asyncio.gather(*(harness.platform.restart(worker, extra_env=env) for worker in WORKERS))


async def run_killed(harness: Harness, text: str) -> list[TurnView]:
    """Two turns, each watched by two clients, whose workers die; returns their final state."""
    sends = [harness.clients[n].send_message("new", text) for n in range(2)]
    sent = await asyncio.gather(*sends)
    watchers = [
        (
            harness.watch(each.conversation_id, ingress=0),
            harness.watch(each.conversation_id, ingress=1, cuts=len(text) + n),
        )
        for n, each in enumerate(sent)
    ]
    await take_over(harness)
    ended = [await pair[0].wait_ended(each.turn_id) for each, pair in zip(sent, watchers, strict=True)]
    for each, pair in zip(sent, watchers, strict=True):
        await harness.check_invariants(each.conversation_id, *pair)
    await harness.close()
    return ended


@pytest.mark.parametrize("failpoints", choose(BORDERS), ids=" ".join)
async def test_workers_killed_at_two_borders_are_taken_over_and_nothing_doubles(
    harness: Harness, failpoints: tuple[str, str]
) -> None:
    await arm(harness, *failpoints)

    for turn in await run_killed(harness, "script:write please"):
        assert (turn.status, turn.outcome) == ("completed", "completed")
        assert turn.answer == "The note is in outputs/note.md."
        canvas = [text.text for text in turn.texts if text.channel == "canvas"]
        assert canvas == ["# Note\n\nWritten once, shown once.\n"]
        assert [step.status for step in turn.steps] == ["completed"]
        assert [file.filename for file in turn.files] == ["note.md"]


@pytest.mark.slow
async def test_workers_killed_while_a_program_calls_a_tool_run_the_program_again(harness: Harness) -> None:
    await arm(harness, "turn.in_program_call:1", "turn.in_program_call:1")

    for turn in await run_killed(harness, "script:program please"):
        assert (turn.status, turn.outcome) == ("completed", "completed")
        assert turn.answer == "The program has looked."
        assert {step.status for step in turn.steps} == {"completed"}


async def test_all_turns_end_once_when_a_worker_dies(harness: Harness) -> None:
    """Two slots, twelve turns in as many conversations, taken by both ingresses at once."""
    await arm(harness, "turn.after_c2:2", "turn.after_c2:1000")
    sent = await asyncio.gather(
        *(harness.clients[n % 2].send_message("new", "script:write please") for n in range(TURNS))
    )
    watchers = [harness.watch(each.conversation_id, ingress=n % 2) for n, each in enumerate(sent)]

    assert await harness.platform.wait_exit(WORKERS[0]) == -signal.SIGKILL
    ended = [await watcher.wait_ended(each.turn_id) for each, watcher in zip(sent, watchers, strict=True)]

    assert [(turn.status, turn.answer) for turn in ended] == [("completed", "The note is in outputs/note.md.")] * TURNS
    for each, watcher in zip(sent, watchers, strict=True):
        state = await harness.check_invariants(each.conversation_id, watcher)
        assert [turn.turn_id for turn in state.turns] == [each.turn_id]
    await harness.close()
    await harness.platform.restart(WORKERS[0])


@pytest.mark.slow
async def test_workers_killed_in_a_summary_leave_one_summary_and_one_answer(harness: Harness, tmp_path: Path) -> None:
    """Both turns need the summary before their first round: the conversation is longer than a request may be."""
    env = save_summaries(tmp_path)
    first = await asyncio.gather(*(harness.clients[n].send_message("new", LONG_CONVERSATION) for n in range(2)))
    watchers = [harness.watch(each.conversation_id, ingress=n) for n, each in enumerate(first)]
    for each, watcher in zip(first, watchers, strict=True):
        await watcher.wait_ended(each.turn_id)
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    await arm(harness, "turn.in_compaction:1", "turn.in_compaction:1", env=env)

    sent = [await harness.clients[n].send_message(each.conversation_id, "script:write") for n, each in enumerate(first)]
    await take_over(harness, env)

    for each, watcher in zip(sent, watchers, strict=True):
        turn = await watcher.wait_ended(each.turn_id)
        assert (turn.status, turn.answer) == ("completed", "The note is in outputs/note.md.")
        states = [envelope.data.status for envelope in watcher.seen if isinstance(envelope.data, ChatCompaction)]
        assert (states[-1], states.count("completed")) == ("completed", 1)
        assert await load_writers(harness, each.conversation_id) == ["model"]
        await harness.check_invariants(each.conversation_id, watcher)
    await harness.close()
    await asyncio.gather(*map(harness.platform.restart, WORKERS))


def save_summaries(folder: Path) -> dict[str, str]:
    """Settings that make a worker summarize early, with a model."""
    script, config = folder / "summaries.toml", folder / "everturn.toml"
    script.write_text(f"[[scripts]]\nwhen = ''\n[[scripts.rounds]]\nreply = '''{SUMMARY}'''\n")
    config.write_text(f'[models.roles]\nsummary = "scripted:{script}"\n')
    return {"EVERTURN_CONFIG": str(config), "CONTEXT_MAX_TOKENS": "24000"}


async def load_writers(harness: Harness, conversation_id: str) -> list[str]:
    """Who wrote each summary of the conversation: a model or rules."""
    query = f"""SELECT body::json ->> 'by' FROM block
        WHERE conversation_id = '{conversation_id}' AND type = '{BlockType.RANGE_SUMMARY}'"""
    return (await asyncio.to_thread(harness.platform.postgres.run_sql, query, database=DATABASE)).split()
