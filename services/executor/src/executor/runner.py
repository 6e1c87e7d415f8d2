"""The executor's life: check the walls, import ahead, take one run, run it in a fork, send what it wrote."""

import argparse
import dataclasses
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from everturn.execution.framing import FrameDecoder, FrameError
from everturn.execution.messages import (
    OUTPUT_DIR,
    WORKDIR,
    Booted,
    LimitName,
    OutputsEnd,
    ProgramError,
    Report,
    RunLimits,
    Start,
)
from everturn.execution.records import BadMessage, parse_message
from executor.channel import Channel, LineCut, empty_input
from executor.confine import become_runner, find_failures, hide_process
from executor.environment import build_environment, import_ahead, save_folders
from executor.files import RawReader, load_output_plan, send_outputs, unpack_inputs
from executor.program import WaitingProgram, fork_program
from executor.report import Tail, limit_of_signal, load_kernel_hits
from executor.watch import MAX_FAILURE_BYTES, MAX_TAIL_CHARS, ProgramEnd, Watch

_UNCONFINED: Final = 70
_NO_SUPERVISOR: Final = 69


def main(arguments: Sequence[str]) -> int:
    """Return the executor's exit code. Its fork, which becomes the program, does not return from here."""
    chosen = _parse(arguments)
    beside_supervisor = chosen.program_uid is not None
    if beside_supervisor:
        become_runner(chosen.program_uid)
        os.chdir(WORKDIR)
    hide_process()
    # Signals from inside reach the first process of a sandbox only if it has a handler.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        channel = None if chosen.line else Channel.replace_standard_streams()
        empty_input()
        failures = find_failures(
            shares_network=chosen.unix_sockets_only or beside_supervisor, shares_processes=beside_supervisor
        ) or _prepare(tuple(filter(None, chosen.preload.split(","))), network=chosen.network)
        if chosen.network and not failures:
            # Imported only here: asyncio costs 40 ms at the start.
            importlib.import_module("executor.proxy").fork_proxy(channel)
        program = None if failures else fork_program(channel)
        channel = channel or Channel.connect(chosen.line)
        channel.send(Booted(f"{sys.implementation.name} {sys.version.split()[0]}", failures))
        if program is None:
            return _UNCONFINED
        _run(program, channel)
    except LineCut as cut:
        sys.stderr.write(f"{cut}\n" if cut.args else "")
        return _NO_SUPERVISOR if cut.args else 0
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="executor", description=__doc__)
    parser.add_argument("--line", help="the supervisor's socket; without it the line is stdin and stdout")
    parser.add_argument(
        "--unix-sockets-only", action="store_true", help="refuse other sockets: the network belongs to the supervisor"
    )
    parser.add_argument(
        "--program-uid",
        type=int,
        help="the supervisor is a process of the same container: start as root and give programs this user",
    )
    parser.add_argument("--network", action="store_true", help="start a proxy to the hosts that the worker allows")
    parser.add_argument("--preload", default="", help="comma-separated modules to import before the run is known")
    return parser.parse_args(arguments)


def _prepare(preload: tuple[str, ...], *, network: bool) -> tuple[str, ...]:
    """Prepare what is the same for all programs; returns the failures."""
    os.environ.clear()
    os.environ.update(build_environment(network=network))
    save_folders()
    failures = import_ahead(preload)
    # The program's garbage collections then skip all of this, so the memory shared by both processes stays shared.
    gc.collect()
    gc.freeze()
    return failures


def _run(program: WaitingProgram, channel: Channel) -> None:
    start = channel.receive(Start)
    unpack_inputs(RawReader(channel), WORKDIR)
    program.begin(start)
    watch = Watch(start.limits)
    pipes = {program.stdout: watch.stdout, program.stderr: watch.stderr, program.failure: watch.failure}
    watch.run(program.pid, channel, pipes)
    _send_result(start, channel, watch)


def _send_result(start: Start, channel: Channel, watch: Watch) -> None:
    plan = load_output_plan(OUTPUT_DIR, start.outputs, start.limits)
    report = build_report(watch.ended(), start.limits, undeclared=plan.undeclared, refused=plan.refused)
    channel.send(dataclasses.replace(report, limits=tuple(dict.fromkeys((*report.limits, *load_kernel_hits())))))
    send_outputs(OUTPUT_DIR, plan, channel)
    channel.send(OutputsEnd())


def build_report(
    end: ProgramEnd,
    limits: RunLimits,
    *,
    undeclared: tuple[str, ...],
    refused: tuple[tuple[str, str], ...],
) -> Report:
    """Build the executor's report about the program."""
    code = os.waitstatus_to_exitcode(end.status)
    error = _parse_failure(end.failure)
    found: list[LimitName] = [] if error is None or error.limit is None else [error.limit]
    if code < 0 and (limit := limit_of_signal(-code)):
        found.append(limit)
    if max(end.stdout.total_bytes, end.stderr.total_bytes) > limits.stdout_bytes:
        found.append("stdout")
    tail_chars = min(limits.tail_chars, MAX_TAIL_CHARS)
    return Report(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        error=error,
        stdout_tail=end.stdout.text()[-tail_chars:],
        stderr_tail=end.stderr.text()[-tail_chars:],
        stdout_bytes=end.stdout.total_bytes,
        stderr_bytes=end.stderr.total_bytes,
        limits=tuple(dict.fromkeys(found)),
        undeclared=undeclared,
        refused=refused,
    )


def _parse_failure(output: Tail) -> ProgramError | None:
    try:
        frames = FrameDecoder(MAX_FAILURE_BYTES).feed(output.data())
        return parse_message(frames[0], ProgramError) if frames and isinstance(frames[0], dict) else None
    except (FrameError, BadMessage):
        return None
