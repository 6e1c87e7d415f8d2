"""F16 with containers: the engine itself is restarted or killed in the middle of a run.

It is an engine of this module's own, with the images copied into it; the one that everybody here uses stays untouched.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.broker import OwnBroker
from helpers.engine import OwnEngine, find_obstacle
from helpers.started_run import refuse, start_run
from leaks.engines import EngineView

from chat_proc.sandbox.containers import open_container_sandbox, parse_address
from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.port import RunRequest, RunResult

END_LIMIT_S = 45.0
POLL_EVERY_S, GONE_POLLS = 0.2, 300
"""A minute, twice the lease of a turn: the engine has to start again, and the broker's reaper to notice it."""


@pytest.fixture(scope="module")
def engine(images: dict[str, str]) -> Iterator[OwnEngine]:
    if obstacle := find_obstacle():
        if os.environ.get("CI") == "true":
            pytest.fail(obstacle)
        pytest.skip(obstacle)
    # Not under pytest's folder: a socket's path may have 107 bytes.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, OwnEngine(Path(folder) / "engine") as own:
        own.load_images(list(images.values()))
        yield own


@pytest.fixture(scope="module")
def broker(engine: OwnEngine, images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    profiles = json.dumps({"default": images, "warm": {**images, "warm": 1}})
    with OwnBroker(tmp_path_factory.mktemp("own-broker"), engine=engine.address, profiles=profiles) as own:
        yield own


@pytest.fixture(autouse=True)
def watch() -> None:
    """In place of the other faults' watch over this machine: here an engine and its processes come and go."""


async def run_next(sandbox: SupervisedSandbox) -> RunResult:
    return await sandbox.run(RunRequest("next", "turn_1", "print(6 * 7)", ()), refuse)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_run_fails_typed_nothing_stays_and_the_next_works(broker, engine, how):
    sandbox = await open_container_sandbox(parse_address(broker.url))
    running = await start_run(sandbox)

    await asyncio.to_thread(engine.stop if how == "stop" else engine.kill)
    result = await asyncio.wait_for(running, END_LIMIT_S)
    without = await run_next(sandbox)
    await asyncio.to_thread(engine.start)
    again = await run_next(sandbox)
    # A broker looks for leftovers at its start, and every half minute, which would be long to wait for here.
    await asyncio.to_thread(broker.stop)
    await asyncio.to_thread(broker.start)

    assert (result.ok, result.error.where) == (False, "sandbox")
    assert (without.ok, without.error.code, without.record.posture) == (False, "sandbox_failed", None)
    assert (again.ok, again.user_out_tail) == (True, "42\n"), again.report_text
    await wait_until_only_warm(broker, engine)


async def wait_until_only_warm(broker: OwnBroker, engine: OwnEngine) -> None:
    """Two containers and a volume of the pair that waits for a run; what the old engine had is gone."""
    view = EngineView(broker.label, engine.address)
    for _ in range(GONE_POLLS):
        if is_one_pair(left := await asyncio.to_thread(view.load_left)):
            break
        await asyncio.sleep(POLL_EVERY_S)
    else:
        raise AssertionError(f"left: {sorted(left)}\n{broker.read_log()[-4000:]}")
    view.close()


def is_one_pair(left: frozenset[str]) -> bool:
    return len(left) == 3 and sum(line.endswith("(running)") for line in left) == 2
