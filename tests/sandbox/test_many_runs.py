"""Many runs, one after the other and at once: each gets its own answer, from a sandbox that no other run has had.

RUNS_IN_A_ROW makes them more.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from leaks.detector import watching

from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.pool import WarmPool
from chat_proc.sandbox.port import ContractItem, RunRequest, RunResult
from everturn.execution.messages import GatewayCall, ToolReply

IN_A_ROW = int(os.environ.get("RUNS_IN_A_ROW", "10"))
AT_ONCE = 20
WARM = 3
RUN_LIMIT_S = 3.4
"""Each needs a boot of its own, a quarter of a second where nothing else runs."""


@pytest_asyncio.fixture
async def warm_sandbox(sandbox: SupervisedSandbox) -> AsyncIterator[SupervisedSandbox]:
    """As a worker has it: with a pool here, or with what the launcher itself keeps warm."""
    if sandbox.launcher.keeps_warm:
        yield sandbox
        return
    full = asyncio.Event()
    pool = WarmPool(sandbox.launcher, {"default": WARM}, on_full=full.set)
    async with watching() as watch:
        filling = asyncio.create_task(pool.run())
        await full.wait()
        yield sandbox.with_launcher(pool)
        filling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await filling
        await watch.wait_nothing_left()


async def ask(sandbox: SupervisedSandbox, number: int) -> RunResult:
    """A program that says how many runs its folder has seen, and gives back its number."""
    program = f"""
import os
seen = len(os.listdir(OUTPUT_DIR))
open(OUTPUT_DIR + "/answer", "w").write("{number * number}")
print({number}, seen)
"""
    request = RunRequest(f"many-{number}", "turn_1", program, (ContractItem("answer"),), timeout_s=60)
    return await sandbox.run(request, refuse)


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False)


def check_answer(result: RunResult, number: int) -> None:
    assert result.ok, result.report_text
    assert result.user_out_tail == f"{number} 0\n"
    assert [artifact.body for artifact in result.artifacts] == [str(number * number).encode()]


@pytest.mark.slow
@pytest.mark.timeout(60 + RUN_LIMIT_S * IN_A_ROW)
async def test_runs_in_a_row_are_right(warm_sandbox):
    for number in range(IN_A_ROW):
        check_answer(await ask(warm_sandbox, number), number)


@pytest.mark.timeout(200)
async def test_twenty_runs_at_once_are_right(warm_sandbox):
    results = await asyncio.gather(*(ask(warm_sandbox, number) for number in range(AT_ONCE)))

    for number, result in enumerate(results):
        check_answer(result, number)
