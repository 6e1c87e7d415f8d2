"""One supervised run, from launch to last frame: the worker's line is its lifeline, the executor is not believed."""

import asyncio
import dataclasses
import time
from typing import Final, TypeVar

from everturn.wire.execution import (
    PIPE_FRAME_BYTES,
    BadMessage,
    Booted,
    Finished,
    InputsEnd,
    Launch,
    LimitName,
    MessageClass,
    OutputsEnd,
    Posture,
    Ready,
    Report,
    Start,
    Stop,
    StopReason,
    Verdict,
    build_message,
    parse_message,
)
from everturn.wire.framing import Frame, FrameError
from exec_supervisor.supervisor.gateway import Gateway
from exec_supervisor.supervisor.lifeline import LifelineCut, watch_lifeline
from exec_supervisor.supervisor.room import Room, limit_address_space, open_room
from exec_supervisor.supervisor.watchdog import load_memory_bytes
from exec_supervisor.supervisor.worker_line import WorkerLine

BOOT_TIMEOUT_S: Final = 20.0
INPUTS_TIMEOUT_S: Final = 60.0
SILENCE_S: Final = 2.0
OUTPUTS_TIMEOUT_S: Final = 60.0
WATCH_EVERY_S: Final = 0.1
_TAR_BYTES_PER_FILE: Final = 4096
_TAR_PADDING_BYTES: Final = 64 << 10

MessageT = TypeVar("MessageT", bound=MessageClass)


async def run_supervisor(line: WorkerLine, lifeline_fd: int) -> int:
    """Run what the worker asks for. The exit code: 0 when the result was sent, 1 when the worker went away before."""
    exit_code = 0
    try:
        launch = await line.receive_launch()
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(line.run()), group.create_task(watch_lifeline(lifeline_fd))]
            await line.send(await run_launch(launch, line))
            for task in watching:
                task.cancel()
    except* (LifelineCut, BrokenPipeError):
        exit_code = 1
    return exit_code


async def run_launch(launch: Launch, line: WorkerLine) -> Finished:
    """The run's end, whatever it was. Everything it had on this machine is gone when this returns."""
    try:
        async with open_room(launch) as room:
            return await Run(launch, line, room).run()
    except (OSError, TimeoutError) as error:
        return Finished("not_started", f"{type(error).__name__}: {error}", 0, None)


class Silent(Exception):
    """The executor has ended, or speaks nonsense."""


class Run:
    """One conversation with an executor. Verdict, duration and limits are found here, not told by it."""

    def __init__(self, launch: Launch, line: WorkerLine, room: Room) -> None:
        self._launch = launch
        self._line = line
        self._room = room
        self._posture: Posture = room.posture
        self._limits: list[LimitName] = []
        self._started = time.monotonic()
        self._stream = room.line
        self._gateway = Gateway(launch.capability, launch.nonce, room.posture.outer_uid, line.call)

    async def run(self) -> Finished:
        """Returns with the sandbox ended."""
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._gateway.run(self._room.listener))
            errors = group.create_task(self._room.child.read_errors())
            finished = await self._converse()
            await self._room.child.end()
            serving.cancel()
        return self._add_findings(finished, await errors)

    async def _converse(self) -> Finished:
        try:
            await self._boot()
            await self._send_inputs()
        except (Silent, TimeoutError, BrokenPipeError, ConnectionResetError) as error:
            return self._end("not_started", str(error) or type(error).__name__)
        self._started = time.monotonic()
        try:
            verdict, report = await self._wait_for_report()
        except Silent as error:
            return self._end("died", str(error))
        finished = self._end(verdict, "", report)
        if report is None:
            return dataclasses.replace(
                finished, detail="it did not end when asked to and was killed, its files are lost"
            )
        try:
            await self._forward_outputs()
        except (Silent, TimeoutError) as error:
            return dataclasses.replace(finished, detail=f"the output files were cut off: {error}")
        return finished

    async def _boot(self) -> None:
        async with asyncio.timeout(BOOT_TIMEOUT_S):
            booted = await self._receive(Booted)
        if booted.failures:
            raise Silent(f"the sandbox is not closed: {', '.join(booted.failures)}")
        self._posture = dataclasses.replace(self._posture, runtime=booted.python)
        await self._line.send(Ready(self._posture))

    async def _send_inputs(self) -> None:
        launch = self._launch
        start = Start(
            program=launch.program,
            outputs=launch.outputs,
            limits=launch.limits,
            nonce=launch.nonce,
            tools=tuple(grant.tool_id for grant in launch.capability.grants),
            memory_limit_bytes=limit_address_space(launch),
        )
        async with asyncio.timeout(INPUTS_TIMEOUT_S):
            await self._send(start)
            async for piece in self._line.inputs():
                await self._stream.send_raw(piece)
            await self._send(InputsEnd())

    async def _wait_for_report(self) -> tuple[Verdict, Report | None]:
        """The report of a program that ended or was stopped; none when a stop is not obeyed. Raises Silent."""
        reporting = asyncio.create_task(self._receive(Report))
        stopping = asyncio.create_task(self._wait_for_stop())
        try:
            await asyncio.wait((reporting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if reporting.done():
                return "ended", reporting.result()
            reason = stopping.result()
            self._note_stop(reason)
            await self._send(Stop(reason))
            await asyncio.wait((reporting,), timeout=SILENCE_S)
            return reason, reporting.result() if reporting.done() else None
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Silent("it ended while it was being stopped") from error
        finally:
            await _cancel(reporting)
            await _cancel(stopping)

    async def _wait_for_stop(self) -> StopReason:
        """Why the program has to end before it is done."""
        asked = asyncio.create_task(self._line.wait_for_stop())
        deadline = self._started + self._launch.timeout_s
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                await asyncio.wait((asked,), timeout=min(left_s, WATCH_EVERY_S))
                if asked.done():
                    return asked.result()
                if self._room.cgroup is None and self._over_memory():
                    return "memory"
            return "timeout"
        finally:
            await _cancel(asked)

    def _over_memory(self) -> bool:
        return load_memory_bytes(self._room.child.pid) > self._launch.limits.memory_bytes

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
            while isinstance(frame := await self._receive_frame(), bytes):
                left -= len(frame)
                if left < 0:
                    self._limits.append("output")
                    raise Silent("more bytes than may leave the sandbox")
                await self._line.send_raw(frame)
        self._parse(frame, OutputsEnd)

    def _end(self, verdict: Verdict, detail: str, report: Report | None = None) -> Finished:
        duration_ms = round((time.monotonic() - self._started) * 1000)
        return Finished(verdict, detail, duration_ms, self._posture, report)

    def _add_findings(self, finished: Finished, errors: str) -> Finished:
        hits = self._room.cgroup.load_hits() if self._room.cgroup else ()
        return dataclasses.replace(
            finished,
            detail="; ".join(part for part in (finished.detail, errors) if part),
            limits=tuple(dict.fromkeys((*self._limits, *hits))),
            calls=tuple(self._gateway.records),
            refusals=dict(self._gateway.refusals),
        )

    async def _send(self, message: MessageClass) -> None:
        await self._stream.send(build_message(message), PIPE_FRAME_BYTES)

    async def _receive(self, kind: type[MessageT]) -> MessageT:
        frame = await self._receive_frame()
        if isinstance(frame, bytes):
            raise Silent("raw bytes where a message belongs")
        return self._parse(frame, kind)

    async def _receive_frame(self) -> Frame:
        try:
            frame = await self._stream.receive()
        except FrameError as error:
            raise Silent(str(error)) from error
        if frame is None:
            raise Silent("the executor ended")
        return frame

    def _parse(self, frame: dict[str, object], kind: type[MessageT]) -> MessageT:
        try:
            return parse_message(frame, kind)
        except BadMessage as error:
            raise Silent(str(error)) from error


async def _cancel(task: asyncio.Task[object]) -> None:
    """End a task of ours and take in how it ended."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
