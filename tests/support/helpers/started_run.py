"""A run whose program has reported that it runs, so that a test hits the program and not its start."""

import asyncio
from itertools import count

from chat_proc.sandbox.port import RunRequest, RunResult, Sandbox
from everturn.execution.messages import Capability, GatewayCall, ToolGrant, ToolReply

PROGRAM = "import time\nawait web.begun()\ntime.sleep(50)"
BEGUN_LIMIT_S = 45.0
_numbers = count(1)


async def start_run(sandbox: Sandbox, *, timeout_s: float = 60) -> asyncio.Task[RunResult]:
    """Fails with the run's report where it ends before its program runs."""
    begun = asyncio.Event()

    async def note(call: GatewayCall) -> ToolReply:
        begun.set()
        return ToolReply(call.id, True)

    capability = Capability((ToolGrant("web.begun"),))
    request = RunRequest(f"begun-{next(_numbers)}", "turn_1", PROGRAM, (), timeout_s=timeout_s, capability=capability)
    running = asyncio.create_task(sandbox.run(request, note))
    waiting = asyncio.create_task(begun.wait())
    await asyncio.wait((waiting, running), timeout=BEGUN_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not begun.is_set():
        assert running.done(), f"no program runs after {BEGUN_LIMIT_S:g} s"
        raise AssertionError(running.result().report_text)
    return running


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False, None, "not_allowed", "")
