"""The warm pool over real supervisors: they wait, are noticed when they die, and don't outlive their worker."""

import asyncio
import contextlib
import os
import signal
import sys

from leaks.detector import watching
from leaks.processes import load_descendants

from chat_proc.sandbox.pool import WarmPool
from chat_proc.sandbox.port import RunRequest
from everturn.execution.messages import GatewayCall, ToolReply

WORKER = """
import asyncio, sys
from pathlib import Path
from chat_proc.sandbox.bubblewrap import open_bubblewrap_sandbox
from chat_proc.sandbox.pool import WarmPool
from everturn.execution.profiles import load_profiles

async def main():
    sandbox = await open_bubblewrap_sandbox(Path(sys.argv[1]), load_profiles(""))
    full = asyncio.Event()
    pool = WarmPool(sandbox.launcher, {"default": 2}, on_full=full.set)
    filling = asyncio.create_task(pool.run())
    await full.wait()
    print("full", flush=True)
    await filling

asyncio.run(main())
"""


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False)


def find_supervisors() -> list[int]:
    """Those of bubblewrap; the broker of other tests has another mode."""
    return [process.pid for process in load_descendants(os.getpid()) if process.command.endswith(" bubblewrap")]


async def test_supervisors_that_wait_go_with_a_worker_that_is_killed(bubblewrap_sandbox, repository):
    async with watching() as watch:
        worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            WORKER,
            str(repository / ".venv-sandbox" / "bin" / "python"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert await asyncio.wait_for(worker.stdout.readline(), 40) == b"full\n"

        worker.kill()
        await worker.wait()

        await watch.wait_nothing_left()


async def test_one_that_is_killed_while_it_waits_is_replaced(bubblewrap_sandbox):
    full = asyncio.Event()
    pool = WarmPool(bubblewrap_sandbox.launcher, {"default": 1}, on_full=full.set)
    warm = bubblewrap_sandbox.with_launcher(pool)

    async with watching() as watch:
        filling = asyncio.create_task(pool.run())
        await asyncio.wait_for(full.wait(), 40)
        [waiting] = find_supervisors()
        os.kill(waiting, signal.SIGKILL)
        async with asyncio.timeout(10):
            gone = False
            while not gone:  # looks once more after it is gone: by then its pipe has reported us so
                gone = waiting not in find_supervisors()
                await asyncio.sleep(0.01)
        result = await warm.run(RunRequest("after-death", "turn_1", "print('fine')", ()), refuse)
        filling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await filling
        assert not watch.load_processes()

    assert result.user_out_tail == "fine\n", result.report_text
