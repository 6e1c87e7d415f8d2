"""F1: workers that die at each border of a turn; every test ends with the history checker.

Two die at a time, each in a turn of its own, because what takes long is the wait for their leases and successors.
"""

import asyncio
import signal

import pytest
from stages.stage import Stage

from everturn.wire.views import TurnView

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

EXTRA_ENV = {"LEASE_S": "4", "WORKER_SLOTS": "1"}
"""One turn at a time: a worker that is to die has no other turn that dies with it. The lease lasts longer than in the
other tests, since two workers start at once, and one that can't renew in time counts as one more that died."""
WORKERS = ("worker-1", "worker-2")
BORDERS = [
    ("turn.claimed:1", "turn.opened:1"),
    ("turn.before_first_token:1", "turn.mid_stream:7"),
    ("turn.before_c1:1", "turn.after_c1:1"),
    ("turn.in_tool:1", "turn.before_c2:1"),
    ("turn.after_c2:1", "turn.before_c3:1"),
    ("turn.after_c3:1", "turn.announced:1"),
]


async def arm(stage: Stage, *failpoints: str) -> None:
    """Each worker dies at its failpoint, and is not started again by itself."""
    stage.platform.auto_restart = False
    starts = [
        stage.platform.restart(worker, extra_env={"FAILPOINT": f"{failpoint}:kill"})
        for worker, failpoint in zip(WORKERS, failpoints, strict=True)
    ]
    await asyncio.gather(*starts)


async def take_over(stage: Stage) -> None:
    """Once both have been killed, others take their places."""
    for worker in WORKERS:
        assert await stage.platform.wait_exit(worker) == -signal.SIGKILL
    await asyncio.gather(*map(stage.platform.restart, WORKERS))


async def run_killed(stage: Stage, text: str) -> list[TurnView]:
    """Two turns, each watched by two clients, whose workers die; their state in the end."""
    sends = [stage.clients[n].send_message("new", text) for n in range(2)]
    sent = await asyncio.gather(*sends)
    watchers = [
        (stage.watch(each.conversation_id, ingress=0), stage.watch(each.conversation_id, ingress=1, cuts=len(text) + n))
        for n, each in enumerate(sent)
    ]
    await take_over(stage)
    ended = [await pair[0].wait_ended(each.turn_id) for each, pair in zip(sent, watchers, strict=True)]
    for each, pair in zip(sent, watchers, strict=True):
        await stage.check_history(each.conversation_id, *pair)
    await stage.close()
    return ended


@pytest.mark.parametrize("failpoints", BORDERS, ids=" ".join)
async def test_workers_killed_at_two_borders_are_taken_over_and_nothing_doubles(
    stage: Stage, failpoints: tuple[str, str]
) -> None:
    await arm(stage, *failpoints)

    for turn in await run_killed(stage, "script:write please"):
        assert (turn.status, turn.outcome) == ("completed", "completed")
        assert turn.answer == "The note is in outputs/note.md."
        canvas = [text.text for text in turn.texts if text.channel == "canvas"]
        assert canvas == ["# Note\n\nWritten once, shown once.\n"]
        assert [step.status for step in turn.steps] == ["completed"]
        assert [file.filename for file in turn.files] == ["note.md"]


async def test_workers_killed_while_a_program_calls_a_tool_run_the_program_again(stage: Stage) -> None:
    await arm(stage, "turn.in_program_call:1", "turn.in_program_call:1")

    for turn in await run_killed(stage, "script:program please"):
        assert (turn.status, turn.outcome) == ("completed", "completed")
        assert turn.answer == "The program has looked."
        assert {step.status for step in turn.steps} == {"completed"}
