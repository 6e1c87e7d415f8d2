"""One run inside the sandbox: check the walls, take program and inputs, run it in a fork, send what it wrote."""

import os
import selectors
import sys
from dataclasses import dataclass
from typing import Final

from everturn.wire.execution import (
    OUTPUT_DIR,
    WORKDIR,
    BadMessage,
    Booted,
    LimitName,
    OutputsEnd,
    ProgramError,
    Report,
    RunLimits,
    Start,
    parse_message,
)
from everturn.wire.framing import FrameDecoder, FrameError
from executor.channel import Channel, LineCut
from executor.confine import end_everything_else, find_failures, hide_process
from executor.files import RawReader, load_output_plan, send_outputs, unpack_inputs
from executor.program import ProgramStreams, run_program
from executor.report import Tail, limit_of_signal

_UNCONFINED: Final = 70
_READ_BYTES: Final = 1 << 16
_MAX_FAILURE_BYTES: Final = 1 << 18  # a failure's texts as JSON, where one character takes up to 12 bytes
_BYTES_PER_CHAR: Final = 4


def main() -> int:
    """The executor's exit code; in the forked process the program's."""
    channel = Channel.take_standard_streams()
    hide_process()
    failures = find_failures()
    version = sys.version.split()[0]
    channel.send(Booted(f"{sys.implementation.name} {version}", failures))
    if failures:
        return _UNCONFINED
    try:
        start = channel.receive(Start)
        unpack_inputs(RawReader(channel), WORKDIR)
        return _run(start, channel)
    except LineCut:
        return 0


def _run(start: Start, channel: Channel) -> int:
    (out_read, out_write), (err_read, err_write), (fail_read, fail_write) = os.pipe(), os.pipe(), os.pipe()
    program_pid = os.fork()
    if program_pid == 0:
        channel.close()
        for descriptor in (out_read, err_read, fail_read):
            os.close(descriptor)
        return run_program(start, ProgramStreams(out_write, err_write, fail_write))
    for descriptor in (out_write, err_write, fail_write):
        os.close(descriptor)
    watch = Watch(start.limits)
    watch.run(program_pid, channel, {out_read: watch.stdout, err_read: watch.stderr, fail_read: watch.failure})
    _send_result(start, channel, watch)
    return 0


def _send_result(start: Start, channel: Channel, watch: "Watch") -> None:
    plan = load_output_plan(OUTPUT_DIR, start.outputs, start.limits)
    channel.send(build_report(watch.ended(), start.limits, undeclared=plan.undeclared, refused=plan.refused))
    send_outputs(OUTPUT_DIR, plan, channel)
    channel.send(OutputsEnd())


class Watch:
    """Reads what the program prints until it ends or the supervisor says stop, then ends whatever it left running."""

    def __init__(self, limits: RunLimits) -> None:
        self.stdout = Tail(limits.tail_chars * _BYTES_PER_CHAR)
        self.stderr = Tail(limits.tail_chars * _BYTES_PER_CHAR)
        self.failure = Tail(_MAX_FAILURE_BYTES)
        self._status = 0

    def run(self, program_pid: int, channel: Channel, pipes: dict[int, Tail]) -> None:
        """Returns when every process of the program is gone. Raises LineCut when the supervisor is."""
        ended = os.pidfd_open(program_pid)
        with selectors.DefaultSelector() as selector:
            for descriptor in (ended, channel, *pipes):
                selector.register(descriptor, selectors.EVENT_READ)
            running = True
            while running:
                for key, _ in selector.select():
                    if key.fileobj is channel:
                        channel.receive_frame()
                        running = False
                    elif key.fd == ended:
                        running = False
                    elif not self._read(key.fd, pipes):
                        selector.unregister(key.fd)
        self._status = end_everything_else(program_pid)
        for descriptor in pipes:
            while self._read(descriptor, pipes):
                pass

    def _read(self, descriptor: int, pipes: dict[int, Tail]) -> bool:
        data = os.read(descriptor, _READ_BYTES)
        pipes[descriptor].add(data)
        return bool(data)

    def ended(self) -> "ProgramEnd":
        """What was seen of the program."""
        return ProgramEnd(self._status, self.stdout, self.stderr, self.failure)


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """A finished program: wait status, what it printed, and the frame in which it told how it failed."""

    status: int
    stdout: Tail
    stderr: Tail
    failure: Tail


def build_report(
    end: ProgramEnd,
    limits: RunLimits,
    *,
    undeclared: tuple[str, ...],
    refused: tuple[tuple[str, str], ...],
) -> Report:
    """The executor's word on the program."""
    code = os.waitstatus_to_exitcode(end.status)
    error = _parse_failure(end.failure)
    found: list[LimitName] = [] if error is None or error.limit is None else [error.limit]
    if code < 0 and (limit := limit_of_signal(-code)):
        found.append(limit)
    if max(end.stdout.total_bytes, end.stderr.total_bytes) > limits.stdout_bytes:
        found.append("stdout")
    return Report(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        error=error,
        stdout_tail=end.stdout.text()[-limits.tail_chars :],
        stderr_tail=end.stderr.text()[-limits.tail_chars :],
        stdout_bytes=end.stdout.total_bytes,
        stderr_bytes=end.stderr.total_bytes,
        limits=tuple(dict.fromkeys(found)),
        undeclared=undeclared,
        refused=refused,
    )


def _parse_failure(told: Tail) -> ProgramError | None:
    try:
        frames = FrameDecoder(_MAX_FAILURE_BYTES).feed(told.data())
        return parse_message(frames[0], ProgramError) if frames and isinstance(frames[0], dict) else None
    except (FrameError, BadMessage):
        return None
