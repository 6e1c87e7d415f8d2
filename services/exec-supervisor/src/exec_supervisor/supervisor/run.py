"""One supervised run, from boot to last frame: the worker's line is its lifeline, the executor is not trusted."""

import asyncio
import dataclasses
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar, cast

from everturn.execution.framing import Frame, FrameError, FrameStream
from everturn.execution.messages import (
    MIB,
    PIPE_FRAME_BYTES,
    Booted,
    Finished,
    InputsEnd,
    Launch,
    LimitName,
    OutputsEnd,
    Posture,
    Ready,
    Report,
    RunLimits,
    Start,
    Stop,
    StopReason,
    Verdict,
)
from everturn.execution.records import BadMessage, MessageClass, build_message, parse_message
from exec_supervisor.supervisor.gateway import Gateway
from exec_supervisor.supervisor.lifeline import LifelineCut, watch_lifeline
from exec_supervisor.supervisor.network import ProgramNetwork
from exec_supervisor.supervisor.sandbox import Sandbox
from exec_supervisor.supervisor.worker_line import WorkerLine

BOOT_TIMEOUT_S: Final = 30.0
"""For sandbox, interpreter and the imports of a warm executor: about 1 s, more on a busy machine."""

INPUTS_TIMEOUT_S: Final = 60.0
SILENCE_S: Final = 2.0
OUTPUTS_TIMEOUT_S: Final = 60.0
ERRORS_TIMEOUT_S: Final = 2.0
"""How long the end of stderr is awaited after the sandbox has ended; usually it is already there."""
WATCH_EVERY_S: Final = 0.1
CANCEL_GRACE_S: Final = 5.0
"""How long a cancelled task can take to end before it is cancelled once more, and again after that."""
_TAR_BYTES_PER_FILE: Final = 4096
_TAR_PADDING_BYTES: Final = 64 << 10
_EXTRA_ADDRESS_SPACE_BYTES: Final = 1024 * MIB

MessageT = TypeVar("MessageT", bound=MessageClass)
OpenSandbox = Callable[[], AbstractAsyncContextManager[Sandbox]]


async def run_supervisor(line: WorkerLine, lifeline_fd: int, open_sandbox: OpenSandbox) -> int:
    """Boot, wait for the one run and supervise it. Exit code: 0 when the result was sent, 1 when the worker is gone."""
    exit_code = 0
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch_lifeline(lifeline_fd))
            await line.send(await _supervise(line, open_sandbox))
            watching.cancel()
    except* (LifelineCut, BrokenPipeError):
        exit_code = 1
    return exit_code


async def _supervise(line: WorkerLine, open_sandbox: OpenSandbox) -> Finished:
    """Supervise one run and return how it ended. Everything it had on this machine is gone then, or the detail says
    what is not.

    An error after the program has run does not change the verdict.
    """
    finished, problem = None, ""
    try:
        async with open_sandbox() as sandbox, asyncio.TaskGroup() as group:
            errors = group.create_task(sandbox.read_errors())
            finished = await _boot_and_run(line, sandbox)
            unended = await _try_end(sandbox)
            # A process that did not end can keep stderr open: the result does not wait for it.
            await asyncio.wait((errors,), timeout=ERRORS_TIMEOUT_S)
            finished = _add_detail(finished, unended, errors.result() if errors.done() else "")
            errors.cancel()
    except* (OSError, TimeoutError) as failed:
        problem = "; ".join(f"{type(error).__name__}: {error}" for error in _flatten(failed))
    if finished is None:
        return Finished("not_started", problem, 0, None)
    return _add_detail(finished, problem)


async def _try_end(sandbox: Sandbox) -> str:
    """End the sandbox; returns why it did not end, or an empty text."""
    try:
        await sandbox.end()
    except (OSError, TimeoutError) as error:
        return f"the sandbox did not end: {type(error).__name__}: {error}"
    return ""


def _add_detail(finished: Finished, *parts: str) -> Finished:
    detail = "; ".join(dict.fromkeys(part for part in (finished.detail, *parts) if part))
    return dataclasses.replace(finished, detail=detail)


def _flatten(failed: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    errors: list[BaseException] = []
    for error in failed.exceptions:
        if isinstance(error, BaseExceptionGroup):
            errors += _flatten(cast("BaseExceptionGroup[BaseException]", error))
        else:
            errors.append(error)
    return errors


async def _boot_and_run(line: WorkerLine, sandbox: Sandbox) -> Finished:
    executor = ExecutorLine(sandbox.line)
    try:
        posture = dataclasses.replace(sandbox.posture, runtime=await executor.boot())
    except (ExecutorFailed, TimeoutError) as error:
        return Finished("not_started", str(error) or "the executor did not boot in time", 0, sandbox.posture)
    sandbox.protect_runner()
    await line.send(Ready(posture))
    async with asyncio.TaskGroup() as group:
        reporting = group.create_task(_try_receive_report(executor))
        launch = await _receive_launch(line, reporting)
        if launch is None:
            ended = reporting.result()
            return Finished("not_started", str(ended), 0, posture)
        reading = group.create_task(line.run())
        finished = await Run(launch, line, sandbox, executor, reporting=reporting, posture=posture).run()
        reporting.cancel()
        reading.cancel()
        return finished


class ExecutorFailed(Exception):
    """The executor has ended, is not isolated, or sent something that it may not send."""


class ExecutorLine:
    """The line to one executor, which is not trusted: any unexpected input ends the line. Only one task can receive."""

    def __init__(self, stream: FrameStream) -> None:
        self._stream = stream

    async def boot(self) -> str:
        """Wait for the executor inside its sandbox; returns the runtime it reports. Raises ExecutorFailed and
        TimeoutError."""
        async with asyncio.timeout(BOOT_TIMEOUT_S):
            booted = await self.receive(Booted)
        if booted.failures:
            raise ExecutorFailed(f"the sandbox is not isolated: {', '.join(booted.failures)}")
        return booted.python

    async def receive_report(self) -> Report:
        """Wait for the end of the program or of the executor. Raises ExecutorFailed."""
        return await self.receive(Report)

    async def send(self, message: MessageClass) -> None:
        """Send a message. Raises BrokenPipeError or ConnectionResetError."""
        await self._stream.send(build_message(message), PIPE_FRAME_BYTES)

    async def send_raw(self, data: bytes) -> None:
        """Send a piece of the input tar. Raises BrokenPipeError or ConnectionResetError."""
        await self._stream.send_raw(data)

    async def receive(self, kind: type[MessageT]) -> MessageT:
        """Return the next frame, which must be a message of this kind. Raises ExecutorFailed."""
        frame = await self.receive_frame()
        if isinstance(frame, bytes):
            raise ExecutorFailed("raw bytes instead of a message")
        return parse(frame, kind)

    async def receive_frame(self) -> Frame:
        """The next frame. Raises ExecutorFailed."""
        try:
            frame = await self._stream.receive()
        except FrameError as error:
            raise ExecutorFailed(str(error)) from error
        except OSError as error:
            raise ExecutorFailed("the connection to the executor was lost") from error
        if frame is None:
            raise ExecutorFailed("the executor ended")
        return frame


def parse(frame: dict[str, object], kind: type[MessageT]) -> MessageT:
    """Parse the message in a frame. Raises ExecutorFailed."""
    try:
        return parse_message(frame, kind)
    except BadMessage as error:
        raise ExecutorFailed(str(error)) from error


async def _try_receive_report(executor: ExecutorLine) -> Report | ExecutorFailed:
    """Receive the report. Started at boot, so that an executor which dies before its run is noticed."""
    try:
        return await executor.receive_report()
    except ExecutorFailed as ended:
        return ended


async def _receive_launch(line: WorkerLine, reporting: "asyncio.Task[Report | ExecutorFailed]") -> Launch | None:
    """Wait for the one run, without a time limit; None when the executor ends first. Raises LifelineCut, BadMessage."""
    launching = asyncio.create_task(line.receive_launch())
    try:
        await asyncio.wait((launching, reporting), return_when=asyncio.FIRST_COMPLETED)
        return launching.result() if launching.done() else None
    finally:
        await _cancel(launching)


def limit_address_space(limits: RunLimits) -> int:
    """RLIMIT_AS in bytes. Libraries reserve far more than they use, hence the allowance above the memory limit."""
    return limits.address_space_bytes or limits.memory_bytes + _EXTRA_ADDRESS_SPACE_BYTES


class Run:
    """One run with an executor. The supervisor determines verdict, duration and limits itself."""

    def __init__(
        self,
        launch: Launch,
        line: WorkerLine,
        sandbox: Sandbox,
        executor: ExecutorLine,
        *,
        reporting: "asyncio.Task[Report | ExecutorFailed]",
        posture: Posture,
    ) -> None:
        self._launch = launch
        self._line = line
        self._sandbox = sandbox
        self._executor = executor
        self._reporting = reporting
        self._posture = posture
        self._limits: list[LimitName] = []
        self._started = time.monotonic()
        self._gateway = Gateway(launch.capability, launch.nonce, posture.outer_uid, line.call)

    async def run(self) -> Finished:
        """Run to the end of the executor's messages; the sandbox is ended but not yet closed."""
        async with asyncio.TaskGroup() as group:
            serving = [group.create_task(self._gateway.run(self._sandbox.listener))]
            if listener := self._sandbox.network_listener:
                network = self._line.network = ProgramNetwork(self._posture.outer_uid, self._line.send)
                serving.append(group.create_task(network.run(listener)))
            finished = await self._run_program()
            finished = _add_detail(finished, await _try_end(self._sandbox))
            for task in serving:
                task.cancel()
        return self._add_findings(finished)

    async def _run_program(self) -> Finished:
        try:
            await self._send_inputs()
        except (TimeoutError, BrokenPipeError, ConnectionResetError) as error:
            return self._end("not_started", str(error) or type(error).__name__)
        self._started = time.monotonic()
        try:
            verdict, report = await self._wait_for_report()
        except ExecutorFailed as error:
            return self._end("died", str(error))
        finished = self._end(verdict, "", report)
        if report is None:
            return dataclasses.replace(
                finished, detail="it did not end when it was stopped and was killed; its files are lost"
            )
        try:
            await self._forward_outputs()
        except (ExecutorFailed, TimeoutError) as error:
            return dataclasses.replace(finished, detail=f"the output files are incomplete: {error}")
        return finished

    async def _send_inputs(self) -> None:
        launch = self._launch
        start = Start(
            execution_id=launch.execution_id,
            program=launch.program,
            outputs=launch.outputs,
            limits=launch.limits,
            nonce=launch.nonce,
            tools=tuple(grant.tool_id for grant in launch.capability.grants),
            memory_limit_bytes=limit_address_space(launch.limits),
            parameters=tuple(tuple(rule.name for rule in grant.arguments or ()) for grant in launch.capability.grants),
        )
        async with asyncio.timeout(INPUTS_TIMEOUT_S):
            await self._executor.send(start)
            async for piece in self._line.inputs():
                await self._executor.send_raw(piece)
            await self._executor.send(InputsEnd())

    async def _wait_for_report(self) -> tuple[Verdict, Report | None]:
        """Wait for the report of a program that ended or was stopped; None if it ignores the stop. Raises
        ExecutorFailed."""
        stopping = asyncio.create_task(self._wait_for_stop())
        try:
            await asyncio.wait((self._reporting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if self._reporting.done():
                return "ended", self._get_report()
            reason = stopping.result()
            self._note_stop(reason)
            await self._executor.send(Stop(reason))
            await asyncio.wait((self._reporting,), timeout=SILENCE_S)
            return reason, self._get_report() if self._reporting.done() else None
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ExecutorFailed("the executor ended while it was being stopped") from error
        finally:
            await _cancel(stopping)

    def _get_report(self) -> Report:
        report = self._reporting.result()
        if isinstance(report, ExecutorFailed):
            raise report
        return report

    async def _wait_for_stop(self) -> StopReason:
        """Wait until the program must be stopped; returns the reason."""
        asked = asyncio.create_task(self._line.wait_for_stop())
        deadline = self._started + self._launch.timeout_s
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                await asyncio.wait((asked,), timeout=min(left_s, WATCH_EVERY_S))
                if asked.done():
                    return asked.result()
                if self._sandbox.is_over_memory(self._launch.limits):
                    return "memory"
            return "timeout"
        finally:
            await _cancel(asked)

    def _note_stop(self, reason: StopReason) -> None:
        match reason:
            case "timeout":
                self._limits.append("time")
            case "memory":
                self._limits.append("memory")
            case "cancelled":
                pass

    async def _forward_outputs(self) -> None:
        limits = self._launch.limits
        left = limits.output_bytes + limits.output_files * _TAR_BYTES_PER_FILE + _TAR_PADDING_BYTES
        async with asyncio.timeout(OUTPUTS_TIMEOUT_S):
            while isinstance(frame := await self._executor.receive_frame(), bytes):
                left -= len(frame)
                if left < 0:
                    self._limits.append("output")
                    raise ExecutorFailed("more bytes than may leave the sandbox")
                await self._line.send_raw(frame)
        parse(frame, OutputsEnd)

    def _end(self, verdict: Verdict, detail: str, report: Report | None = None) -> Finished:
        duration_ms = round((time.monotonic() - self._started) * 1000)
        return Finished(verdict, detail, duration_ms, self._posture, report)

    def _add_findings(self, finished: Finished) -> Finished:
        return dataclasses.replace(
            finished,
            limits=tuple(dict.fromkeys((*self._limits, *self._sandbox.load_hits()))),
            calls=tuple(self._gateway.records),
            refusals=dict(self._gateway.refusals),
        )


async def _cancel(task: "asyncio.Task[object]") -> None:
    """Cancel a task and retrieve its result, so that its exception is not logged as unhandled."""
    # Twice, because the first cancellation can be lost. This process has the standard library only.
    for _ in range(2):
        task.cancel()
        await asyncio.wait((task,), timeout=CANCEL_GRACE_S)
    if task.done() and not task.cancelled():
        task.exception()
