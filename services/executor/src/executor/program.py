"""The forked process that becomes the program: its limits, streams and environment, then its source."""

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

from everturn.execution.framing import FrameError, encode_frame
from everturn.execution.messages import GATEWAY_SOCKET, OUTPUT_DIR, PROGRAM_NAME, WORKDIR, ProgramError, Start
from everturn.execution.records import build_message
from executor.confine import confine_program
from executor.environment import build_run_environment
from executor.report import build_program_error, remember_program
from executor.tool_stubs import build_stubs

FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class ProgramStreams:
    """Descriptors that the program writes to: its output, its errors, and its failure."""

    stdout: int
    stderr: int
    failure: int


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
        module.__dict__.update(build_stubs(start.tools, gateway.call, start.parameters), ToolError=rpc.ToolError)
    sys.modules["__main__"] = module


def _report_failure(descriptor: int, error: ProgramError) -> None:
    try:
        os.write(descriptor, encode_frame(build_message(error)))
    except (OSError, FrameError) as unsent:
        sys.stderr.write(f"{unsent}\n")
