"""Common parts of all launchers: a booted supervisor for each run, and one `Sandbox` on top."""

import asyncio
import contextlib
import math
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from chat_proc.sandbox.network import NetworkAccess, RunNetwork, find_network_fault
from chat_proc.sandbox.port import ConnectionRecord, FileHash, RunError, RunRequest, RunResult, ToolCaller
from chat_proc.sandbox.results import (
    EMPTY_TAR,
    build_broken,
    build_refused,
    build_result,
    hash_bytes,
    measure_input,
    pack_inputs,
    unpack_outputs,
)
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisedRun, SupervisorFailed, run_supervised
from everturn.core.metrics import SANDBOX_BOOT_SECONDS, SANDBOX_RUN_SECONDS
from everturn.core.tracing import NO_TRACING, Tracing
from everturn.execution.messages import MIB, Launch, Posture, RunLimits, Verdict, check_relative_path

MAX_PROGRAM_BYTES: Final = MIB
MAX_INPUT_BYTES: Final = 64 * MIB
_EXECUTION_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)

MAX_UNPACKED_ON_LOOP_BYTES: Final = 256 << 10
"""Outputs up to this size are unpacked and hashed on the event loop, within a millisecond; larger ones in a thread."""

TRIAL: Final = "trial"
"""The name of a run that only verifies that a launcher works."""


def find_problem(request: RunRequest) -> RunError | None:
    """Why a request can't run under any profile, or None."""
    if not _EXECUTION_ID.fullmatch(request.execution_id):
        return _bad("the execution id may contain only letters, digits, '-' and '_'")
    if len(request.program.encode("utf-8", "surrogatepass")) > MAX_PROGRAM_BYTES:
        return _bad(f"the program is longer than {MAX_PROGRAM_BYTES} bytes")
    if not 0 < request.timeout_s < math.inf:
        return _bad("the time limit must be a finite number of seconds above 0")
    paths = [item.filepath for item in request.contract]
    if len(set(paths)) < len(paths):
        return _bad("the contract lists a file twice")
    for path in (*paths, *request.inputs):
        try:
            check_relative_path(path)
        except ValueError as error:
            return _bad(f"{path[:100]!r}: {error}")
    for names in (paths, list(request.inputs)):
        if (folder := _find_file_used_as_folder(names)) is not None:
            return _bad(f"{folder[:100]!r} can't be a file and the folder of another file")
    return None


def find_excess(request: RunRequest, limits: RunLimits) -> RunError | None:
    """Which part of a request exceeds its profile, or None. Raises OSError if an input file is missing."""
    if len(request.contract) > limits.output_files:
        return _bad(f"the contract lists more than {limits.output_files} files")
    allowed = min(MAX_INPUT_BYTES, limits.work_dir_bytes)
    if (size := sum(map(measure_input, request.inputs.values()))) > allowed:
        return RunError(
            "inputs_too_large", f"the input files have {size} bytes; at most {allowed} are allowed", "request"
        )
    return None


def hash_inputs(inputs: Mapping[str, bytes | Path]) -> tuple[FileHash, ...]:
    """The inputs for the record. Raises OSError."""
    bodies = ((path, body if isinstance(body, bytes) else body.read_bytes()) for path, body in inputs.items())
    return tuple(FileHash(path, len(body), hash_bytes(body)) for path, body in bodies)


def _find_file_used_as_folder(paths: Sequence[str]) -> str | None:
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    return next((path for path in paths if path in folders), None)


def _bad(message: str) -> RunError:
    return RunError("bad_request", message, "request")


class UnknownProfile(SupervisorFailed):
    """The operator has no such profile."""

    is_permanent: bool = True


class Launcher(Protocol):
    """A way to start supervisors."""

    @property
    def keeps_warm(self) -> bool:
        """Whether supervisors are kept booted for it, as the broker does; if not, `sandbox.pool` does it."""
        ...

    def take(self, profile: str, run_name: str) -> AbstractAsyncContextManager[BootedSupervisor]:
        """A booted supervisor, ended with all its processes when the block exits. Raises SupervisorFailed, OSError.

        `run_name` is for labels and logs only.
        """
        ...


class SupervisedSandbox:
    """A `Sandbox` over any launcher. `posture`, `limits` and `image` are the default profile's, as found by a trial.

    `image` is the engine's name of the executor's image, `environment` the digest of the libraries of programs outside
    containers; empty if there is none.
    """

    def __init__(
        self,
        launcher: Launcher,
        posture: Posture,
        limits: RunLimits,
        image: str = "",
        *,
        tracing: Tracing = NO_TRACING,
        network: NetworkAccess | None = None,
        environment: str = "",
    ) -> None:
        self._environment = environment
        self._launcher = launcher
        self._posture = posture
        self._limits = limits
        self.image = image
        self._tracing = tracing
        self._network = network

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
        """The same sandbox over a launcher that wraps this one's."""
        return self._copy(launcher=launcher)

    def with_tracing(self, tracing: Tracing) -> "SupervisedSandbox":
        """The same sandbox with spans for its runs."""
        return self._copy(tracing=tracing)

    def with_network(self, network: NetworkAccess) -> "SupervisedSandbox":
        """The same sandbox with the networks of profiles; without them, runs of such a profile fail."""
        return self._copy(network=network)

    def with_environment(self, environment: str) -> "SupervisedSandbox":
        """The same sandbox, whose records of runs have this digest."""
        return self._copy(environment=environment)

    def _copy(
        self,
        *,
        launcher: Launcher | None = None,
        tracing: Tracing | None = None,
        network: NetworkAccess | None = None,
        environment: str = "",
    ) -> "SupervisedSandbox":
        return SupervisedSandbox(
            launcher or self._launcher,
            self._posture,
            self._limits,
            self.image,
            tracing=tracing or self._tracing,
            network=network or self._network,
            environment=environment or self._environment,
        )

    async def run(self, request: RunRequest, call_tool: ToolCaller, *, stop: asyncio.Event | None = None) -> RunResult:
        if problem := find_problem(request):
            return build_refused(request, self._limits, problem)
        build_failed = build_refused
        network = None
        if self._network:
            network = self._network.open(request.profile, request.turn_id, request.serve_models)
        try:
            async with contextlib.AsyncExitStack() as owned:
                about = {"everturn.sandbox.launcher": self._posture.launcher, "everturn.run": name_run(request)}
                with (
                    SANDBOX_BOOT_SECONDS.labels(self._posture.launcher).time(),
                    self._tracing.span("sandbox.boot", about),
                ):
                    taking = self._launcher.take(request.profile, name_run(request))
                    supervisor = await owned.enter_async_context(taking)
                if fault := find_network_fault(supervisor.posture, expected=network is not None):
                    raise SupervisorFailed(fault)
                if excess := find_excess(request, supervisor.limits):
                    return build_refused(request, supervisor.limits, excess)
                build_failed = build_broken
                return await self._run_on(supervisor, request, call_tool, stop or asyncio.Event(), network)
        except (OSError, SupervisorFailed) as error:
            is_refused = build_failed is build_refused and isinstance(error, SupervisorFailed) and error.is_permanent
            where = "request" if is_refused else "sandbox"
            failed = RunError("sandbox_failed", str(error) or type(error).__name__, where)
            result = build_failed(request, self._limits, failed)
            used = network.records if network else ()
            return replace(result, record=replace(result.record, connections=used))

    async def _run_on(
        self,
        supervisor: BootedSupervisor,
        request: RunRequest,
        call_tool: ToolCaller,
        stop: asyncio.Event,
        network: RunNetwork | None,
    ) -> RunResult:
        began, outcome = time.monotonic(), "failed"
        about = {"everturn.sandbox.launcher": self._posture.launcher, "everturn.run": name_run(request)}
        try:
            with self._tracing.span("sandbox.run", about) as span:
                done = await execute_on(supervisor, request, call_tool, stop, network)
                # The supervisor has no network by design, so its findings are reported here.
                found = {"everturn.run.verdict": done.verdict, "everturn.run.calls": done.calls}
                self._tracing.record("supervisor.run", found, lasted_s=done.result.duration_ms / 1000)
                outcome = "ok" if done.result.ok else "failed"
                if done.result.error:
                    span.fail(done.result.error.code)
            return replace(done.result, record=replace(done.result.record, environment=self._environment))
        finally:
            SANDBOX_RUN_SECONDS.labels(self._posture.launcher, outcome).observe(time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class _Ran:
    """A result, and the supervisor's findings about the run."""

    result: RunResult
    verdict: Verdict
    calls: int


async def execute_on(
    supervisor: BootedSupervisor,
    request: RunRequest,
    call_tool: ToolCaller,
    stop: asyncio.Event,
    network: RunNetwork | None = None,
) -> _Ran:
    input_hashes, pieces = await load_inputs(request.inputs)
    launch = build_launch(request, supervisor.limits)
    done = await run_supervised(supervisor, launch, pieces, call_tool, stop, network)
    used = network.records if network else ()
    build = partial(build_run_result, request, supervisor.limits, done, input_hashes, used)
    result = build() if len(done.tar) <= MAX_UNPACKED_ON_LOOP_BYTES else await asyncio.to_thread(build)
    images = {"image": supervisor.image, "supervisor_image": supervisor.supervisor_image}
    result = replace(result, record=replace(result.record, **images))
    return _Ran(result, done.finished.verdict, len(done.finished.calls))


def build_run_result(
    request: RunRequest,
    limits: RunLimits,
    done: SupervisedRun,
    input_hashes: tuple[FileHash, ...],
    connections: tuple[ConnectionRecord, ...] = (),
) -> RunResult:
    """The envelope with the unpacked and hashed outputs: 150 ms for 60 MB."""
    outputs = unpack_outputs(done.tar, list_outputs(request))
    return build_result(request, limits, done.finished, outputs, input_hashes, connections)


def list_outputs(request: RunRequest) -> tuple[str, ...]:
    """The paths of the contract, whose indexes are the names in the tar of outputs."""
    return tuple(item.filepath for item in request.contract)


async def load_inputs(inputs: Mapping[str, bytes | Path]) -> tuple[tuple[FileHash, ...], Sequence[bytes]]:
    """Hashes and tar. Most programs have no files and need no thread."""
    if not inputs:
        return (), (EMPTY_TAR,)
    return await asyncio.to_thread(hash_inputs, inputs), await asyncio.to_thread(list, pack_inputs(inputs))


def name_run(request: RunRequest) -> str:
    """The name of a run for operators, in the engine's containers and in the broker's log."""
    return f"{request.turn_id}/{request.execution_id}"


def build_launch(request: RunRequest, limits: RunLimits) -> Launch:
    """The launch message for the supervisor. The nonce identifies it to its program."""
    return Launch(
        execution_id=request.execution_id,
        program=request.program,
        outputs=list_outputs(request),
        timeout_s=request.timeout_s,
        limits=limits,
        capability=request.capability,
        nonce=secrets.token_urlsafe(24),
    )
