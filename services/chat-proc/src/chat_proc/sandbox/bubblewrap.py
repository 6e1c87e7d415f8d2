"""The launcher for machines without a container engine: a supervisor process per run, which starts bubblewrap."""

import asyncio
import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

from chat_proc.sandbox.client import SupervisorFailed, run_supervised
from chat_proc.sandbox.interpreter import load_interpreter
from chat_proc.sandbox.obstacles import build_missing, check_version, explain_failure, load_host_settings
from chat_proc.sandbox.packing import pack_inputs, unpack_outputs
from chat_proc.sandbox.requests import find_problem, hash_inputs
from chat_proc.sandbox.results import build_refused, build_result
from everturn.ports.sandbox import RunError, RunRequest, RunResult, ToolCaller
from everturn.wire.execution import Finished, GatewayCall, Interpreter, Launch, Posture, ToolReply

SANDBOX_UID: Final = 1001
_SUPERVISOR: Final = (sys.executable, "-I", "-m", "exec_supervisor")
_VERSION_TIMEOUT_S: Final = 10.0
# The run's folder must be one that the dropped user can reach; the first that fits is taken.
_RUN_PARENTS: Final = ("/run", "/tmp")  # noqa: S108 - a folder of its own with a random name is made below
_TRIAL: Final = RunRequest(execution_id="trial", turn_id="trial", program="pass", contract=(), timeout_s=20.0)


async def open_bubblewrap_sandbox(
    python: Path, *, sandbox_uid: int = SANDBOX_UID, supervisor: Sequence[str] = _SUPERVISOR
) -> "BubblewrapSandbox":
    """A launcher that a trial run has shown to work. Raises SandboxUnavailable with the reason and a remedy.

    `python` belongs to an environment that has the executor and the scientific libraries. `supervisor` is the command
    of a supervisor process. As root, programs run as `sandbox_uid`; otherwise as the user that we are.
    """
    bwrap = await _load_bwrap()
    interpreter = await load_interpreter(python)
    launcher = _Launcher(bwrap, interpreter, sandbox_uid, tuple(supervisor))
    finished = await launcher.try_out()
    if finished.verdict != "ended" or finished.posture is None:
        raise explain_failure(finished.detail, load_host_settings())
    return BubblewrapSandbox(launcher, finished.posture)


async def _load_bwrap() -> str:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise build_missing()
    process = await asyncio.create_subprocess_exec(bwrap, "--version", stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(_VERSION_TIMEOUT_S):
        answer, _ = await process.communicate()
    check_version(answer.decode())
    return bwrap


class BubblewrapSandbox:
    """A `Sandbox`; make one with `open_bubblewrap_sandbox`."""

    def __init__(self, launcher: "_Launcher", posture: Posture) -> None:
        self._launcher = launcher
        self._posture = posture

    @property
    def posture(self) -> Posture:
        return self._posture

    async def run(self, request: RunRequest, call_tool: ToolCaller, *, stop: asyncio.Event | None = None) -> RunResult:
        try:
            if problem := find_problem(request):
                return build_refused(request, problem)
            input_hashes = await asyncio.to_thread(hash_inputs, request.inputs)
            finished, tar = await self._launcher.run(request, call_tool, stop or asyncio.Event())
        except (OSError, SupervisorFailed) as error:
            return build_refused(request, RunError("sandbox_failed", f"{type(error).__name__}: {error}", "sandbox"))
        outputs = unpack_outputs(tar, tuple(item.filepath for item in request.contract))
        return build_result(request, finished, outputs, input_hashes)


class _Launcher:
    def __init__(self, bwrap: str, interpreter: Interpreter, uid: int, supervisor: tuple[str, ...]) -> None:
        self._bwrap = bwrap
        self._interpreter = interpreter
        self._uid = uid
        self._supervisor = supervisor

    async def try_out(self) -> Finished:
        try:
            return (await self.run(_TRIAL, _offer_no_tool, asyncio.Event()))[0]
        except (OSError, SupervisorFailed) as error:
            return Finished("not_started", str(error), 0, None)

    async def run(self, request: RunRequest, call_tool: ToolCaller, stop: asyncio.Event) -> tuple[Finished, bytes]:
        """The supervisor's last frame and the output tar. Raises what `run_supervised` raises."""
        pieces = await asyncio.to_thread(list, pack_inputs(request.inputs))
        with _run_dir(request.execution_id) as run_dir:
            launch = self._build_launch(request, run_dir)
            done = await run_supervised(self._supervisor, launch, pieces, call_tool, stop)
        return done.finished, done.tar

    def _build_launch(self, request: RunRequest, run_dir: str) -> Launch:
        return Launch(
            execution_id=request.execution_id,
            program=request.program,
            outputs=tuple(item.filepath for item in request.contract),
            timeout_s=request.timeout_s,
            limits=request.limits,
            capability=request.capability,
            nonce=secrets.token_urlsafe(24),
            interpreter=self._interpreter,
            bwrap=self._bwrap,
            run_dir=run_dir,
            sandbox_uid=self._uid,
        )


async def _offer_no_tool(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False, None, "not_allowed", "a trial run has no tools")


@contextlib.contextmanager
def _run_dir(execution_id: str) -> Generator[str]:
    """Where the supervisor makes the run's folder. It also removes it; if it was killed, what it left is removed here.

    A folder made here would stay if we were killed before the supervisor knew of it.
    """
    run_dir = os.path.join(_choose_parent(), f"everturn-run-{execution_id}-{secrets.token_hex(4)}")
    try:
        yield run_dir
    finally:
        with contextlib.suppress(FileNotFoundError):
            for folder, _, names in os.walk(run_dir, topdown=False):
                for name in names:
                    os.unlink(os.path.join(folder, name))
                os.rmdir(folder)


def _choose_parent() -> str:
    for parent in _RUN_PARENTS:
        if os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK):
            return parent
    return tempfile.gettempdir()
