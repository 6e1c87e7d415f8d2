"""The forked process that becomes the program: its limits, streams and environment, then its text."""

import ast
import importlib
import inspect
import os
import sys
import types
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, cast

from everturn.wire.execution import (
    GATEWAY_SOCKET,
    OUTPUT_DIR,
    PROGRAM_NAME,
    WORKDIR,
    ProgramError,
    Start,
    build_message,
)
from everturn.wire.framing import FrameError, encode_frame
from executor.confine import confine_program
from executor.report import build_program_error, remember_program
from executor.tool_stubs import build_stubs

_MAX_THREADS: Final = 4
FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class ProgramStreams:
    """Descriptors the program writes to: its output, its errors, and how it failed."""

    stdout: int
    stderr: int
    failure: int


def run_program(start: Start, streams: ProgramStreams) -> int:
    """Become the program and run it to its end; the exit code of this process."""
    _take_streams(streams)
    _fill_environment()
    confine_program(start.limits, start.memory_limit_bytes)
    exit_code, error = execute(start.program, _build_module(start))
    if error is not None:
        _tell_failure(streams.failure, error)
    return exit_code


def execute(text: str, module: types.ModuleType) -> tuple[int, ProgramError | None]:
    """Run the text as the main module; top-level await works. A program that uses none may start a loop of its own."""
    remember_program(text)
    try:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(text, PROGRAM_NAME, "exec", flags=flags, dont_inherit=True)
        outcome: object = eval(code, module.__dict__)  # noqa: S307 - running a program is what this process is for
        if inspect.iscoroutine(outcome):
            # Loaded only here: asyncio costs 40 ms at the start.
            importlib.import_module("asyncio").run(cast("Coroutine[Any, Any, None]", outcome))
    except SystemExit as leaving:
        return _exit_code(leaving), None
    except BaseException as error:  # noqa: BLE001 - the edge of a sandbox run: what the program raises is its result
        failure = build_program_error(error)
        sys.stderr.write(failure.traceback)
        return FAILED, failure
    return 0, None


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
        # Lines reach the pipe at once, so the tail of a program that is killed is not lost with its buffer.
        cast("Any", stream).reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _fill_environment() -> None:
    """Writable places for libraries that insist on one; few threads, for each costs address space and a process."""
    for name, folder in (("MPLCONFIGDIR", ".config/matplotlib"), ("TMPDIR", ".tmp")):
        place = os.path.join(WORKDIR, folder)
        os.makedirs(place, exist_ok=True)
        os.environ[name] = place
    threads = str(min(os.cpu_count() or 1, _MAX_THREADS))
    os.environ.update(MPLBACKEND="agg", HOME=WORKDIR, OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads)


def _build_module(start: Start) -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=PROGRAM_NAME, OUTPUT_DIR=OUTPUT_DIR, WORKDIR=WORKDIR)
    if start.tools:
        gateway = importlib.import_module("executor.rpc").Gateway(GATEWAY_SOCKET, start.nonce)
        module.__dict__.update(build_stubs(start.tools, gateway.call))
    sys.modules["__main__"] = module
    return module


def _tell_failure(descriptor: int, error: ProgramError) -> None:
    try:
        os.write(descriptor, encode_frame(build_message(error)))
    except (OSError, FrameError) as unsent:
        sys.stderr.write(f"{unsent}\n")
