"""A `Sandbox` over an engine of remote runs, which waits for each of them: for programs that tests run on every
launcher."""

import asyncio
from dataclasses import dataclass

from chat_proc.sandbox.launching import build_run_result
from chat_proc.sandbox.port import RunError, RunRequest, RunResult, Sandbox, ToolCaller
from chat_proc.sandbox.remote.port import RemoteEngine
from chat_proc.sandbox.remote.recording import prepare_run
from chat_proc.sandbox.results import build_broken
from everturn.execution.messages import Posture, RunLimits
from everturn.execution.profiles import Profiles

CHECK_EVERY_S = 0.2


@dataclass(frozen=True)
class RemoteSandbox:
    """Implements Sandbox. Programs that may call tools run in another one."""

    engine: RemoteEngine
    profiles: Profiles
    posture: Posture
    with_tools: Sandbox

    @property
    def limits(self) -> RunLimits:
        return self.profiles["default"].limits

    async def run(self, request: RunRequest, call_tool: ToolCaller, *, stop: asyncio.Event | None = None) -> RunResult:
        if request.capability.grants:
            return await self.with_tools.run(request, call_tool, stop=stop)
        limits = self.profiles[request.profile].limits
        prepared = await prepare_run(request, limits)
        if isinstance(prepared, RunResult):
            return prepared
        task = await self.engine.start(prepared)
        try:
            while (state := (await self.engine.check([task]))[task]).phase != "ended":
                if stop is not None and stop.is_set():
                    await self.engine.stop(task, "cancelled")
                await asyncio.sleep(CHECK_EVERY_S)
            done = await self.engine.collect(request.execution_id, limits)
        finally:
            await self.engine.stop(task, "nobody waits for it")
            await self.engine.discard(request.execution_id)
        if done is None:
            return build_broken(request, limits, RunError("sandbox_failed", state.reason, "sandbox"))
        return build_run_result(request, limits, done, prepared.start.inputs)
