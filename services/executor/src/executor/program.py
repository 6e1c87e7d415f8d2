"""The forked process that becomes the program: its limits, streams and environment, then its source.

It is forked before the program is known: a run then needs no fork of everything preloaded. The fork has no line to the
supervisor. It waits for its orders at a pipe of its own, and ends with the runner.
"""

import ast
import atexit
import contextlib
import gc
import importlib
import inspect
import io
import os
import signal
import sys
import types
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

from everturn.execution.framing import RAW_CHUNK_BYTES, FrameDecoder, FrameError, encode_frame
from everturn.execution.messages import (
    GATEWAY_SOCKET,
    OUTPUT_DIR,
    PIPE_FRAME_BYTES,
    PROGRAM_NAME,
    WORKDIR,
    ProgramError,
    Start,
)
from everturn.execution.records import build_message, parse_message
from executor.channel import Channel
from executor.confine import become_program_user, confine_program
from executor.environment import build_run_environment
from executor.report import build_program_error, remember_program

FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class ProgramStreams:
    """Descriptors that the program writes to: its output, its errors, and its failure."""

    stdout: int
    stderr: int
    failure: int


@dataclass(frozen=True, slots=True)
class WaitingProgram:
    """The runner's ends of the pipes: `orders` is written once, the others carry the program's output and its
    failure."""

    pid: int
    orders: int
    stdout: int
    stderr: int
    failure: int

    def begin(self, start: Start) -> None:
        """Start the program. If it is already gone, the runner notices when it waits for it."""
        data = memoryview(encode_frame(build_message(start), PIPE_FRAME_BYTES))
        try:
            while data:
                data = data[os.write(self.orders, data) :]
        except BrokenPipeError:
            return
        finally:
            os.close(self.orders)


def fork_program(channel: Channel | None) -> WaitingProgram:
    """Fork the process. The fork itself never returns from here."""
    orders_read, orders_write = os.pipe()
    (out_read, out_write), (err_read, err_write), (fail_read, fail_write) = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        become_program_user()
        if channel is not None:
            channel.close()
        for descriptor in (orders_write, out_read, err_read, fail_read):
            os.close(descriptor)
        streams = ProgramStreams(out_write, err_write, fail_write)
        get_ready(streams)
        leave(_wait_and_run(orders_read, streams))
    for descriptor in (orders_read, out_write, err_write, fail_write):
        os.close(descriptor)
    return WaitingProgram(pid, orders_write, out_read, err_read, fail_read)


def _wait_and_run(orders: int, streams: ProgramStreams) -> int:
    decoder = FrameDecoder(PIPE_FRAME_BYTES)
    while data := os.read(orders, RAW_CHUNK_BYTES):
        for frame in decoder.feed(data):
            os.close(orders)
            return run_program(parse_message({} if isinstance(frame, bytes) else frame, Start), streams)
    return 0


def get_ready(streams: ProgramStreams) -> None:
    """Do everything independent of the program, and touch the pages that every program uses, because page faults are
    slow."""
    _take_streams(streams)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _reseed()
    execute("pass", types.ModuleType("__main__"))


def run_program(start: Start, streams: ProgramStreams) -> int:
    """Become the program and run it to its end; returns the exit code of this process."""
    os.environ.update(build_run_environment(start))
    confine_program(start.limits, start.memory_limit_bytes)
    _build_module(start)
    exit_code, error = execute(start.program, sys.modules["__main__"])
    if error is not None:
        _report_failure(streams.failure, error)
    return exit_code


def execute(text: str, module: types.ModuleType) -> tuple[int, ProgramError | None]:
    """Run the source as the main module. Top-level await works; a program without it can start a loop of its own."""
    remember_program(text)
    try:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(text, PROGRAM_NAME, "exec", flags=flags, dont_inherit=True)
        outcome: object = eval(code, module.__dict__)  # noqa: S307 - running a program is what this process is for
        if inspect.iscoroutine(outcome):
            # Imported only here: asyncio costs 40 ms at the start.
            importlib.import_module("asyncio").run(cast("Coroutine[Any, Any, None]", outcome))
    except SystemExit as leaving:
        return _exit_code(leaving), None
    except BaseException as error:  # noqa: BLE001 - the edge of a sandbox run: what the program raises is its result
        failure = build_program_error(error)
        sys.stderr.write(failure.traceback)
        return FAILED, failure
    return 0, None


def leave(exit_code: int) -> NoReturn:
    """End this process as Python does: threads, exit handlers, the program's objects, buffers.

    Preloaded modules are left out, because their cleanup takes longer than most programs run.
    """
    with contextlib.suppress(SystemExit):
        if threads := sys.modules.get("threading"):
            cast("Any", threads)._shutdown()
        cast("Any", atexit)._run_exitfuncs()
    _flush_all()
    sys.modules.pop("__main__", None)
    gc.collect()
    _flush_all()
    os._exit(exit_code)


def _flush_all() -> None:
    """Flush open files. Also before a collection, which can finalize a file's buffer before its text layer."""
    for left in (*gc.get_objects(), sys.stdout, sys.stderr):
        if isinstance(left, (io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)):
            with contextlib.suppress(OSError, ValueError):
                left.flush()


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    sys.stderr.write(f"{leaving.code}\n")
    return FAILED


def _take_streams(streams: ProgramStreams) -> None:
    os.dup2(streams.stdout, 1)
    os.dup2(streams.stderr, 2)
    for stream in (sys.stdout, sys.stderr):
        # Lines reach the pipe at once, so the output of a killed program is not lost with its buffer.
        cast("Any", stream).reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _reseed() -> None:
    """Give this program its own random numbers. Python reseeds its generator in every fork, numpy does not."""
    if numbers := sys.modules.get("numpy.random"):
        cast("Any", numbers).seed()


def _build_module(start: Start) -> None:
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=PROGRAM_NAME, OUTPUT_DIR=OUTPUT_DIR, WORKDIR=WORKDIR)
    if start.tools:
        rpc = importlib.import_module("executor.rpc")
        gateway = rpc.Gateway(GATEWAY_SOCKET, start.nonce)
        module.__dict__.update(rpc.build_stubs(start.tools, gateway.call, start.parameters), ToolError=rpc.ToolError)
    sys.modules["__main__"] = module


def _report_failure(descriptor: int, error: ProgramError) -> None:
    try:
        os.write(descriptor, encode_frame(build_message(error)))
    except (OSError, FrameError) as unsent:
        sys.stderr.write(f"{unsent}\n")
