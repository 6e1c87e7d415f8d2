"""F16 with containers: broker, worker or half of a pair killed. Runs fail typed, nothing stays, the next works.

The broker is one of its own on the engine that everybody here uses; no test touches the engine itself.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import docker
import pytest
import pytest_asyncio
from helpers.broker import OwnBroker
from helpers.started_run import refuse, start_run
from leaks.detector import Watch, watching
from leaks.engines import EngineView, load_pairs

from chat_proc.sandbox.containers import open_container_sandbox, parse_address
from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.port import RunRequest

NOWHERE = "everturn/there-is-none:latest"
GONE_LIMIT_S = 6.0
"""The guarantee is 2 s."""
END_LIMIT_S = 30.0

WORKER = """
import asyncio, sys
from chat_proc.sandbox.containers import parse_address
from chat_proc.sandbox.containers import open_container_sandbox
from chat_proc.sandbox.port import RunRequest
from everturn.execution.messages import Capability, ToolGrant, ToolReply

async def begun(call):
    print("begun", flush=True)
    return ToolReply(call.id, True)

async def main():
    sandbox = await open_container_sandbox(parse_address(sys.argv[1]))
    program = "import time; await web.begun(); time.sleep(50)"
    capability = Capability((ToolGrant("web.begun"),))
    request = RunRequest("killed", "turn_1", program, (), timeout_s=60, capability=capability)
    await sandbox.run(request, begun)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, images: dict[str, str]) -> Iterator[OwnBroker]:
    profiles = {"default": images, "nowhere": {**images, "executor_image": NOWHERE}}
    with OwnBroker(tmp_path_factory.mktemp("own-broker"), profiles=json.dumps(profiles)) as own:
        yield own


@pytest_asyncio.fixture(autouse=True)
async def watch(broker: OwnBroker) -> AsyncIterator[Watch]:
    """Also of a broker that a test has killed and started again nothing may be left."""
    view = EngineView(broker.label)
    async with watching(view) as looking:
        looking.keep(broker.pid)
        yield looking
        looking.keep(broker.pid)
        await looking.wait_nothing_left()
    view.close()


@pytest.fixture
def engine() -> Iterator[Any]:
    client = docker.DockerClient.from_env()
    yield client
    client.close()


@pytest.fixture(scope="module")
def sandbox(broker: OwnBroker) -> SupervisedSandbox:
    return asyncio.run(open_container_sandbox(parse_address(broker.url)))


async def check_next_run_works(sandbox: SupervisedSandbox) -> None:
    result = await sandbox.run(RunRequest("next", "turn_1", "print(6 * 7)", ()), refuse)
    assert (result.ok, result.user_out_tail) == (True, "42\n"), result.report_text


async def test_a_killed_broker_ends_its_runs_and_the_next_one_cleans_up(broker, sandbox):
    running = await start_run(sandbox)
    view = EngineView(broker.label)

    await asyncio.to_thread(broker.kill)
    killed_s = time.monotonic()
    result = await asyncio.wait_for(running, END_LIMIT_S)
    while view.load_containers():
        assert time.monotonic() - killed_s < GONE_LIMIT_S
        await asyncio.sleep(0.05)
    without = await sandbox.run(RunRequest("without", "turn_1", "print(1)", ()), refuse)
    await asyncio.to_thread(broker.start)

    assert (result.ok, result.error.code) == (False, "sandbox_failed")
    assert result.report_text.startswith("The run failed")
    assert (without.error.code, without.record.posture) == ("sandbox_failed", None)
    assert "can't be reached" in without.error.message
    await check_next_run_works(sandbox)


@pytest.mark.parametrize(("role", "code"), [("supervisor", "sandbox_failed"), ("executor", "killed")])
async def test_half_of_a_pair_that_is_killed_takes_the_other_half_with_it(broker, sandbox, engine, role, code):
    running = await start_run(sandbox)
    [container] = engine.containers.list(filters={"label": [broker.label, f"everturn.role={role}"]})

    container.kill()
    result = await asyncio.wait_for(running, END_LIMIT_S)

    assert (result.ok, result.error.code, result.error.where) == (False, code, "sandbox")
    await check_next_run_works(sandbox)


async def test_the_pair_does_not_outlive_its_worker(broker, watch):
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, broker.url, stdout=asyncio.subprocess.PIPE
    )
    assert await asyncio.wait_for(worker.stdout.readline(), END_LIMIT_S) == b"begun\n"

    worker.kill()
    await worker.wait()

    await watch.wait_nothing_left(GONE_LIMIT_S)


async def test_cancelling_the_task_ends_the_pair(sandbox, watch):
    running = await start_run(sandbox)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await watch.wait_nothing_left(GONE_LIMIT_S)


async def test_a_missing_image_is_a_failed_run_and_not_a_run_somewhere_else(sandbox):
    request = RunRequest("nowhere", "turn_1", "print(1)", (), profile="nowhere")

    result = await sandbox.run(request, refuse)

    assert (result.ok, result.error.code, result.record.posture) == (False, "sandbox_failed", None)
    assert NOWHERE in result.error.message
    await check_next_run_works(sandbox)


async def test_a_stopped_broker_takes_its_warm_pairs_with_it(tmp_path, images):
    with OwnBroker(tmp_path, profiles=json.dumps({"default": {**images, "warm": 2}})) as warm:
        view = EngineView(warm.label)
        deadline = time.monotonic() + END_LIMIT_S
        while sum(pair.state == "warm" for pair in load_pairs(str(warm.socket)).pairs) < 2:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

        await asyncio.to_thread(warm.stop)

        assert view.load_left() == frozenset()
        view.close()
