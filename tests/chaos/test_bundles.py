"""Bundles that change or disappear while their turns run on workers that die."""

import asyncio
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.forks import WORKER_BOUNDS
from helpers.slow import choose
from platform_harness.harness import Harness

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

EXTRA_ENV = {WORKER_BOUNDS: '{"lease_s": 4, "orphans_after_s": 4}', "WORKER_SLOTS": "1"}
WORKERS = ("worker-1", "worker-2")
BORDERS = [
    ("turn.opened:1", "turn.before_c1:1"),
    ("turn.after_c1:1", "turn.after_c2:1"),
]


def write(folder: Path, *, rounds: int) -> None:
    """A bundle whose turns may have so many rounds. The script of a turn that writes a note needs two."""
    (folder / "desk").mkdir(exist_ok=True)
    (folder / "desk" / "bundle.toml").write_text(f'id = "desk"\ntitle = "Desk"\n[react]\nmax_iterations = {rounds}\n')


def lower(folder: Path) -> None:
    write(folder, rounds=1)


def remove(folder: Path) -> None:
    shutil.rmtree(folder / "desk")


async def wait_listed(harness: Harness) -> None:
    async with asyncio.timeout(60):
        while "desk" not in [agent.id for agent in await harness.clients[0].list_agents()]:
            """Each look is a request."""


@pytest.mark.parametrize("change", [lower, remove])
@pytest.mark.parametrize("failpoints", choose(BORDERS), ids=" ".join)
async def test_a_turn_runs_the_version_with_which_it_began(
    harness: Harness, tmp_path: Path, failpoints: tuple[str, str], change: Callable[[Path], None]
) -> None:
    write(tmp_path, rounds=3)
    env = {"BUNDLES_DIR": str(tmp_path)}
    harness.platform.auto_restart = False
    await asyncio.gather(
        *(
            harness.platform.restart(worker, extra_env={**env, "FAILPOINT": f"{failpoint}:kill"})
            for worker, failpoint in zip(WORKERS, failpoints, strict=True)
        )
    )
    await wait_listed(harness)
    sends = [harness.clients[n].send_message("new", "script:write please", bundle_id="desk") for n in range(2)]
    sent = await asyncio.gather(*sends)
    watchers = [harness.watch(each.conversation_id, ingress=n) for n, each in enumerate(sent)]
    for worker in WORKERS:
        assert await harness.platform.wait_exit(worker) == -signal.SIGKILL

    change(tmp_path)
    await asyncio.gather(*(harness.platform.restart(worker, extra_env=env) for worker in WORKERS))

    for each, watcher in zip(sent, watchers, strict=True):
        turn = await watcher.wait_ended(each.turn_id)
        assert (turn.outcome, turn.answer) == ("completed", "The note is in outputs/note.md.")
        await harness.check_invariants(each.conversation_id, watcher)
    await harness.close()
