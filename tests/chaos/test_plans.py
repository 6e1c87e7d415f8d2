"""Turns that are plans of steps, while workers die at each border of a step."""

import asyncio
import signal
from pathlib import Path

import pytest
from helpers.forks import WORKER_BOUNDS
from helpers.slow import choose
from platform_harness.harness import Harness

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

FOLDER = Path(__file__).parent
EXTRA_ENV = {
    WORKER_BOUNDS: '{"lease_s": 4, "orphans_after_s": 4}',
    "WORKER_SLOTS": "1",
    "EVERTURN_MODEL": f"scripted:{FOLDER / 'plan_scripts.toml'}",
    "EVERTURN_CONFIG": str(FOLDER / "plans.toml"),
}
WORKERS = ("worker-1", "worker-2")
BORDERS = [
    ("turn.before_plan:1", "turn.after_plan:1"),
    ("turn.before_first_token:2", "turn.mid_stream:20"),
    ("turn.before_c1:2", "turn.after_c1:1"),
    ("turn.in_tool:2", "turn.before_c2:1"),
    ("turn.after_c2:2", "turn.before_step_result:2"),
    ("turn.after_step_result:1", "turn.after_plan:2"),
    ("turn.before_c3:1", "turn.after_c3:1"),
]


@pytest.mark.parametrize("failpoints", choose(BORDERS), ids=" ".join)
async def test_every_lane_survives_its_worker(harness: Harness, failpoints: tuple[str, str]) -> None:
    harness.platform.auto_restart = False
    await asyncio.gather(
        *(
            harness.platform.restart(worker, extra_env={"FAILPOINT": f"{failpoint}:kill"})
            for worker, failpoint in zip(WORKERS, failpoints, strict=True)
        )
    )

    sent = await asyncio.gather(*(client.send_message("new", "script:plan please") for client in harness.clients[:2]))
    watchers = [harness.watch(each.conversation_id, ingress=n) for n, each in enumerate(sent)]
    for worker in WORKERS:
        assert await harness.platform.wait_exit(worker) == -signal.SIGKILL
    await asyncio.gather(*(harness.platform.restart(worker) for worker in WORKERS))

    for each, watcher in zip(sent, watchers, strict=True):
        turn = await watcher.wait_ended(each.turn_id)
        assert (turn.outcome, turn.answer) == ("completed", "All parts are done.")
        assert [(step.step_id, step.status) for step in turn.plans[0].steps] == [(name, "done") for name in "pqr"]
        assert sorted((step.step_id, step.status) for step in turn.steps) == [(name, "completed") for name in "pqr"]
        canvas = sorted((text.artifact, text.text) for text in turn.texts if text.channel == "canvas")
        assert canvas == [(f"files/{name}.md", f"# {name}") for name in "pqr"]
        assert [text.text for text in turn.texts if text.channel == "answer"] == ["All parts are done."]
        await harness.check_invariants(each.conversation_id, watcher)
    await harness.close()
