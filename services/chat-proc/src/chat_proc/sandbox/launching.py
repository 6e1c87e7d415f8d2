"""What all ways to start a supervisor share: a booted one for each run, and one `Sandbox` over them."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from chat_proc.sandbox.packing import EMPTY_TAR, pack_inputs, unpack_outputs
from chat_proc.sandbox.requests import find_excess, find_problem, hash_inputs
from chat_proc.sandbox.results import build_broken, build_refused, build_result
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisedRun, SupervisorFailed, run_supervised
from everturn.ports.sandbox import FileHash, RunError, RunRequest, RunResult, ToolCaller
from everturn.telemetry.metrics import SANDBOX_BOOT_SECONDS, SANDBOX_RUN_SECONDS
from everturn.telemetry.tracing.spans import NO_TRACING, Tracing
from everturn.wire.execution import Launch, Posture, RunLimits, Verdict

MAX_UNPACKED_ON_LOOP_BYTES: Final = 256 << 10
"""Outputs up to this size are unpacked and hashed at once, within a millisecond; larger ones in a thread."""

TRIAL: Final = "trial"
"""The name of a run that only shows that a launcher works."""


class UnknownProfile(SupervisorFailed):
    """The operator has no such profile."""


class Launcher(Protocol):
    """A way to start supervisors."""

    def take(self, profile: str, run_name: str) -> AbstractAsyncContextManager[BootedSupervisor]:
        """A booted supervisor, ended with all it has when the block is left. Raises SupervisorFailed, OSError.

        `run_name` is for labels and logs only.
        """
        ...


class SupervisedSandbox:
    """A `Sandbox` over any launcher. `posture`, `limits` and `image` are the default profile's, as a trial found them.

    `image` is the executor's, as an engine names it; empty where there is none.
    """

    def __init__(
        self,
        launcher: Launcher,
        posture: Posture,
        limits: RunLimits,
        image: str = "",
        *,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._launcher = launcher
        self._posture = posture
        self._limits = limits
        self.image = image
        self._tracing = tracing

    @property
    def posture(self) -> Posture:
        return self._posture

    @property
    def limits(self) -> RunLimits:
        return self._limits

    @property
    def launcher(self) -> Launcher:
        return self._launcher

    def with_launcher(self, launcher: Launcher) -> "SupervisedSandbox":
        """The same sandbox over a launcher that takes its supervisors from this one's."""
        return SupervisedSandbox(launcher, self._posture, self._limits, self.image, tracing=self._tracing)

    def with_tracing(self, tracing: Tracing) -> "SupervisedSandbox":
        """The same sandbox, which tells of its runs."""
        return SupervisedSandbox(self._launcher, self._posture, self._limits, self.image, tracing=tracing)

    async def run(self, request: RunRequest, call_tool: ToolCaller, *, stop: asyncio.Event | None = None) -> RunResult:
        if problem := find_problem(request):
            return build_refused(request, self._limits, problem)
        build_failed = build_refused
        try:
            async with contextlib.AsyncExitStack() as owned:
                about = {"everturn.sandbox.launcher": self._posture.launcher, "everturn.run": name_run(request)}
                with (
                    SANDBOX_BOOT_SECONDS.labels(self._posture.launcher).time(),
                    self._tracing.span("sandbox.boot", about),
                ):
                    taking = self._launcher.take(request.profile, name_run(request))
                    supervisor = await owned.enter_async_context(taking)
                if excess := find_excess(request, supervisor.limits):
                    return build_refused(request, supervisor.limits, excess)
                build_failed = build_broken
                return await self._run_on(supervisor, request, call_tool, stop or asyncio.Event())
        except (OSError, SupervisorFailed) as error:
            failed = RunError("sandbox_failed", str(error) or type(error).__name__, "sandbox")
            return build_failed(request, self._limits, failed)

    async def _run_on(
        self, supervisor: BootedSupervisor, request: RunRequest, call_tool: ToolCaller, stop: asyncio.Event
    ) -> RunResult:
        began, outcome = time.monotonic(), "failed"
        about = {"everturn.sandbox.launcher": self._posture.launcher, "everturn.run": name_run(request)}
        try:
            with self._tracing.span("sandbox.run", about) as span:
                done = await _run_on(supervisor, request, call_tool, stop)
                # The supervisor has no way out by design, so what it found is told for it.
                found = {"everturn.run.verdict": done.verdict, "everturn.run.calls": done.calls}
                self._tracing.tell("supervisor.run", found, lasted_s=done.result.duration_ms / 1000)
                outcome = "ok" if done.result.ok else "failed"
                if done.result.error:
                    span.fail(done.result.error.code)
            return done.result
        finally:
            SANDBOX_RUN_SECONDS.labels(self._posture.launcher, outcome).observe(time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class _Ran:
    """A result, and what the supervisor found about the run."""

    result: RunResult
    verdict: Verdict
    calls: int


async def _run_on(
    supervisor: BootedSupervisor, request: RunRequest, call_tool: ToolCaller, stop: asyncio.Event
) -> _Ran:
    input_hashes, pieces = await _load_inputs(request.inputs)
    launch = build_launch(request, supervisor.limits)
    done = await run_supervised(supervisor, launch, pieces, call_tool, stop)
    build = partial(_build_result, request, supervisor.limits, done, launch.outputs, input_hashes)
    result = build() if len(done.tar) <= MAX_UNPACKED_ON_LOOP_BYTES else await asyncio.to_thread(build)
    result = replace(result, receipt=replace(result.receipt, image=supervisor.image))
    return _Ran(result, done.finished.verdict, len(done.finished.calls))


def _build_result(
    request: RunRequest,
    limits: RunLimits,
    done: SupervisedRun,
    names: tuple[str, ...],
    input_hashes: tuple[FileHash, ...],
) -> RunResult:
    """The envelope with the unpacked and hashed outputs: 150 ms for 60 MB."""
    return build_result(request, limits, done.finished, unpack_outputs(done.tar, names), input_hashes)


async def _load_inputs(inputs: Mapping[str, bytes | Path]) -> tuple[tuple[FileHash, ...], Sequence[bytes]]:
    """Hashes and tar. Most programs have no files: those don't wait for a thread."""
    if not inputs:
        return (), (EMPTY_TAR,)
    return await asyncio.to_thread(hash_inputs, inputs), await asyncio.to_thread(list, pack_inputs(inputs))


def name_run(request: RunRequest) -> str:
    """What an operator finds a run by, among the containers of an engine and in the broker's log."""
    return f"{request.turn_id}/{request.execution_id}"


def build_launch(request: RunRequest, limits: RunLimits) -> Launch:
    """What the supervisor is told of a run. The nonce names it towards its program."""
    return Launch(
        execution_id=request.execution_id,
        program=request.program,
        outputs=tuple(item.filepath for item in request.contract),
        timeout_s=request.timeout_s,
        limits=limits,
        capability=request.capability,
        nonce=secrets.token_urlsafe(24),
    )
