"""The other run of the escape battery: it lives beside all attempts, has secrets and must not be disturbed."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

from chat_proc.sandbox.battery.findings import Finding, find_for
from chat_proc.sandbox.battery.hunger import describe
from chat_proc.sandbox.battery.trials import NONCE
from everturn.ports.sandbox import ContractItem, RunRequest, RunResult, Sandbox
from everturn.wire.execution import Capability, GatewayCall, ToolGrant, ToolReply
from everturn.wire.profiles import BATTERY_PROFILE

ATTEMPT: Final = ("end of a run", "disturb another run")
_START_S: Final = 60.0
_STAY_S: Final = 300.0
_TOOLS: Final = Capability((ToolGrant("battery_tools.tell"), ToolGrant("battery_tools.stay", timeout_s=_STAY_S)))
_PROGRAM: Final = """
import os, socket
mark = {mark!r}
for folder in (OUTPUT_DIR, WORKDIR):
    with open(os.path.join(folder, mark), "w") as file: file.write(mark)
with socket.socket(socket.AF_UNIX) as server:
    server.bind("\\0" + mark)
    server.listen()
    await battery_tools.tell(nonce={nonce})
    await battery_tools.stay()
print("undisturbed")
"""
_TELL: Final = f"await battery_tools.tell(nonce={NONCE})"


class NeighbourLost(Exception):
    """The other run did not come up."""


@dataclass(slots=True)
class _Desk:
    """The worker's side of the neighbour's tools."""

    nonce: asyncio.Future[str]
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, call: GatewayCall) -> ToolReply:
        if call.tool_id == "battery_tools.tell":
            if not self.nonce.done():
                self.nonce.set_result(str(call.arguments["nonce"]))
        else:
            await self.release.wait()
        return ToolReply(call.id, True)


@dataclass(slots=True)
class Neighbour:
    """A run that stays until `leave`."""

    nonce: str
    _desk: _Desk
    _running: asyncio.Task[RunResult]

    async def leave(self) -> Finding:
        """Let it end; whether it did well."""
        self._desk.release.set()
        result = await self._running
        well = result.ok and result.user_out_tail == "undisturbed\n"
        return find_for(*ATTEMPT, "" if well else f"it ended with {describe(result)}", describe(result))


@contextlib.asynccontextmanager
async def open_neighbour(sandbox: Sandbox, mark: str) -> AsyncGenerator[Neighbour]:
    """A live run that has `mark` in its program, its files and the name of its socket. Raises NeighbourLost."""
    desk = _Desk(asyncio.get_running_loop().create_future())
    request = _build_request(_PROGRAM.format(mark=mark, nonce=NONCE), mark)
    running = asyncio.create_task(sandbox.run(request, desk.answer))
    try:
        yield Neighbour(await _take_nonce(desk, running), desk, running)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def load_ended_nonce(sandbox: Sandbox) -> str:
    """The nonce of a run that is over. Raises NeighbourLost."""
    desk = _Desk(asyncio.get_running_loop().create_future())
    result = await sandbox.run(_build_request(_TELL), desk.answer)
    if not desk.nonce.done():
        raise NeighbourLost(result.report_text)
    return desk.nonce.result()


async def _take_nonce(desk: _Desk, running: asyncio.Task[RunResult]) -> str:
    await asyncio.wait((desk.nonce, running), timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
    if not desk.nonce.done():
        raise NeighbourLost(running.result().report_text if running.done() else f"not started within {_START_S} s")
    return desk.nonce.result()


def _build_request(program: str, mark: str = "") -> RunRequest:
    return RunRequest(
        execution_id=f"battery-{secrets.token_hex(8)}",
        turn_id="turn_battery",
        program=program,
        contract=(ContractItem(mark),) if mark else (),
        timeout_s=_STAY_S,
        profile=BATTERY_PROFILE,
        capability=_TOOLS,
    )
