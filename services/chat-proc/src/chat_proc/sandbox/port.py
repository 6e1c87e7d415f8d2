"""The code tool's interface to a sandbox: one program in, one result envelope out, even on failure."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from everturn.core.errors import Unavailable
from everturn.execution.messages import (
    CallRecord,
    Capability,
    GatewayCall,
    LimitName,
    Posture,
    RunLimits,
    ToolReply,
    Visibility,
)
from everturn.execution.profiles import DEFAULT_PROFILE

ServeConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
"""Serves one connection of a program to its end, and closes it. When this is cancelled, it ends within a second."""
ToolCaller = Callable[[GatewayCall], Awaitable[ToolReply]]
"""Runs a tool for a program; an EverturnError becomes an error reply. Grant and quota are already checked."""


@dataclass(frozen=True, slots=True)
class ContractItem:
    """A file that the program declares to write, relative to its `OUTPUT_DIR`."""

    filepath: str
    description: str = ""
    visibility: Visibility = "external"


@dataclass(frozen=True, slots=True)
class RunNotes:
    """What the result says of the start of its run, and what a run keeps that goes on without its call.

    `began_at` is by the clock of the worker that starts it, None if runs get no receipts. `unknown` and `left_out` are
    lines for the model, at most eleven each: paths that the program names and that don't exist, and files that it does
    not get.
    """

    began_at: datetime | None = None
    unknown: str = ""
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One program to run. `execution_id` is unique and has only letters, digits, `-` and `_`.

    `inputs` are bytes, or a local file, by path relative to the program's `WORKDIR`, which is also its current folder:
    `turn_<id>/attachments/<name>`. `timeout_s` counts from the program's first line. `profile` names the operator's
    limits; nothing in a request can extend them. `serve_models` is the model server of the program, which reaches it as
    MODEL_HOST if its profile lists that.
    """

    execution_id: str
    turn_id: str
    program: str
    contract: tuple[ContractItem, ...]
    inputs: Mapping[str, bytes | Path] = field(default_factory=dict[str, bytes | Path])
    timeout_s: float = 60.0
    profile: str = DEFAULT_PROFILE
    capability: Capability = field(default_factory=Capability)
    notes: RunNotes = field(default_factory=RunNotes)
    serve_models: ServeConnection | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class RunArtifact:
    """A file of the contract that the program wrote. `body` comes from an untrusted program."""

    filepath: str
    description: str
    visibility: Visibility
    size: int
    sha256: str
    body: bytes


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run is not ok. `where` is `program.py line N`, `program.py`, `outputs`, `request` or `sandbox`. A sandbox
    that would refuse the same request again is one of `request`.

    Codes: program_error, syntax_error, exit_code, killed, timeout, memory_limit, cpu_limit, cancelled,
    missing_output_files, output_rejected, inputs_too_large, bad_request, sandbox_failed.
    """

    code: str
    message: str
    where: str


@dataclass(frozen=True, slots=True)
class FileHash:
    """An input or output file."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ConnectionRecord:
    """The connections of a run to one host and port. `refused` counts those that were not opened or had to end, by
    reason: not_allowed, not_public, unreachable, over_limit.

    After 50 destinations, all further ones are one record.
    """

    host: str
    port: int
    opened: int = 0
    refused: Mapping[str, int] = field(default_factory=dict[str, int])
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The program, its inputs, its protections and its requests. `posture` is None if nothing was started. `profile` is
    the name of the execution profile.

    `image` and `supervisor_image` are the digests of the two images, `environment` is that of the libraries of programs
    outside containers. Each is empty if there is none.
    """

    program_sha256: str
    timeout_s: float
    limits: RunLimits
    posture: Posture | None
    inputs: tuple[FileHash, ...] = ()
    outputs: tuple[FileHash, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    refusals: Mapping[str, int] = field(default_factory=dict[str, int])
    image: str = ""
    profile: str = DEFAULT_PROFILE
    supervisor_image: str = ""
    connections: tuple[ConnectionRecord, ...] = ()
    environment: str = ""


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """What ended the program: itself (`exit`, with its `code`), a `signal`, a `limit` of the run, a person who
    `cancelled` it, or a `sandbox` that failed; `not_run` is a program that never began.

    `signal` is a name such as SIGSEGV. It is also set if the kernel enforces a limit by a signal.
    """

    by: Literal["exit", "signal", "limit", "cancelled", "sandbox", "not_run"]
    code: int | None = None
    signal: str | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """The envelope, the same for every launcher and every failure.

    `artifacts` has the written files even if `ok` is false. `report_text` describes everything in plain text for the
    model; files outside the contract are only named. `limits_hit` can name limits that the program survived. All texts
    are free of NUL and of lone surrogates.
    """

    ok: bool
    artifacts: tuple[RunArtifact, ...]
    error: RunError | None
    exit: ProgramExit
    report_text: str
    user_out_tail: str
    runtime_err_tail: str
    limits_hit: tuple[LimitName, ...]
    duration_ms: int
    record: RunRecord


class SandboxUnavailable(Unavailable):
    """Programs can't be run on this machine."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        """`reason` is one sentence; `remedy` the one command that would change it, empty where there is none."""
        super().__init__(f"{reason} Try: {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


class Sandbox(Protocol):
    """A launcher. It keeps no state between runs; each run has its own processes and folders."""

    @property
    def posture(self) -> Posture:
        """Which protections are active and how they are enforced, as found by a trial."""
        ...

    @property
    def limits(self) -> RunLimits:
        """What a run of the default profile may use."""
        ...

    async def run(self, request: RunRequest, call_tool: ToolCaller, *, stop: asyncio.Event | None = None) -> RunResult:
        """Run one program to its end; a failed run is a result, not an exception.

        Setting `stop` ends the program and returns a result with what it wrote until then, within 2 s. Cancelling the
        awaiting task kills the run within 2 s without a result.
        """
        ...
