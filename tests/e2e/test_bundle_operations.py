"""Operations of a bundle on a real platform: results, a turn beside operations that crash and hang, the death of a
worker, and a new version."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.forks import ForkingSpawn
from helpers.homes import copy_home

from everturn_client.errors import ProblemError
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

WORKFLOW = '''
import asyncio, os, time
from everturn_sdk import BaseWorkflow, OperationContext, OperationError, operation

class Desk(BaseWorkflow):
    async def run(self, payload):
        await self.step("wait", asyncio.sleep, 4, effect="irreversible")
        return await (await self.build_react()).run(payload)

    @operation(effect="pure")
    def greet(self, context: OperationContext, name: str) -> dict:
        """Greets a person."""
        return {"text": f"Hello {name}", "by": context.user_id}

    @operation()
    def refuse(self) -> None:
        """Refuses."""
        raise OperationError("There is no such ticket.")

    @operation()
    def crash(self) -> None:
        """Crashes."""
        os._exit(5)

    @operation(timeout_s=1)
    def hang(self) -> None:
        """Never returns."""
        while True:
            time.sleep(0.01)

    @operation(timeout_s=5)
    async def wait(self) -> None:
        """Waits."""
        await asyncio.sleep(60)

    @operation()
    def big(self) -> str:
        """Returns 100 MB."""
        return "x" * 100_000_000
'''
SCRIPT = """
[[scripts]]
when = 'Hi'
[[scripts.rounds]]
reply = '''<channel:action>{"action": "complete", "notes": "", "final_answer": "Done."}</channel:action>'''
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "desk"
    folder.mkdir()
    (folder / "bundle.toml").write_text('id = "desk"\n')
    (folder / "workflow.py").write_text(WORKFLOW)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory, make_harness: Any, bundle: Path) -> AsyncIterator[Any]:
    """A platform with one worker and one bundle."""
    files = tmp_path_factory.mktemp("files")
    (files / "model.toml").write_text(SCRIPT)
    env = {
        "EVERTURN_MODEL": f"scripted:{files / 'model.toml'}",
        "BUNDLES_DIR": str(bundle.parent),
        "BUNDLE_ENVIRONMENTS_DIR": str(files / "environments"),
    }
    home = copy_home(tmp_path_factory.mktemp("platform"))
    async with Platform(home, ingresses=1, workers=1, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        opened = make_harness(platform)
        yield opened
        await opened.quit()


async def fail(desk: Any, name: str, **arguments: Any) -> tuple[int, str]:
    """The status of a call that gives no result, and the kind of its problem."""
    with pytest.raises(ProblemError) as refused:
        await desk.clients[0].call_operation("desk", name, arguments)
    problem = refused.value.problem
    return problem.status, problem.type.rpartition(":")[2]


async def test_a_program_calls_an_operation(desk: Any) -> None:
    client = desk.clients[0]

    result = await client.call_operation("desk", "greet", {"name": "Ann"})
    listed = await client.list_operations("desk")

    assert result["text"] == "Hello Ann"
    assert result["by"]
    assert [each.name for each in listed] == ["big", "crash", "greet", "hang", "refuse", "wait"]
    assert await fail(desk, "refuse") == (422, "operation-refused")
    assert await fail(desk, "greet") == (422, "unprocessable")
    assert await fail(desk, "other") == (404, "unknown-operation")


async def test_a_turn_runs_on_beside_operations_that_fail(desk: Any) -> None:
    sent = await desk.clients[0].send_message("new", "Hi", bundle_id="desk")
    watcher = desk.watch(sent.conversation_id)

    failed: list[tuple[int, str]] = []
    # One person can have two open.
    for pair in (("hang", "big"), ("crash", "hang"), ("big", "crash")):
        failed += await asyncio.gather(*(fail(desk, name) for name in pair))

    turn = await watcher.wait_ended(sent.turn_id)
    assert (turn.outcome, turn.answer) == ("completed", "Done.")
    assert {status for status, _ in failed} <= {500, 502, 503, 504}
    assert (502, "operation-lost") in failed
    await desk.check_invariants(sent.conversation_id, watcher)
    await desk.close()


@pytest.mark.slow
async def test_the_death_of_a_worker_is_an_unknown_outcome_and_the_next_one_serves(desk: Any) -> None:
    call = asyncio.create_task(fail(desk, "wait"))
    await asyncio.sleep(2)
    desk.platform.kill("worker-1", signal.SIGKILL)

    assert await call == (502, "operation-lost")
    async with asyncio.timeout(60):
        while True:
            try:
                assert (await desk.clients[0].call_operation("desk", "greet", {"name": "Bo"}))["text"] == "Hello Bo"
                break
            except ProblemError as error:
                assert error.problem.status == 503


async def test_a_new_version_serves_its_operations(desk: Any, bundle: Path) -> None:
    (bundle / "workflow.py").write_text(WORKFLOW.replace("Hello {name}", "Good day {name}"))

    async with asyncio.timeout(60):
        while (await desk.clients[0].call_operation("desk", "greet", {"name": "Ann"}))["text"] != "Good day Ann":
            """Each look is a request."""
