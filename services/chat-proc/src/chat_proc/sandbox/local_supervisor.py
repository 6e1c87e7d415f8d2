"""A supervisor as a process of this machine: what every launcher without a broker is made of.

It finds the interpreter for programs, starts and boots a supervisor for each run, and ends it with everything it
started.
"""

import asyncio
import contextlib
import json
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import structlog

from chat_proc.sandbox.launching import TRIAL, SupervisedSandbox, UnknownProfile
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisorFailed
from everturn.core.subprocesses import END_WITHIN_S, run_command, wait_for_end, wait_for_start
from everturn.core.transports import CheckedWriter
from everturn.execution.framing import FrameDecoder, FrameError, FrameStream
from everturn.execution.messages import (
    PIPE_FRAME_BYTES,
    Boot,
    Finished,
    Interpreter,
    LimitName,
    Posture,
    Ready,
    UidRange,
)
from everturn.execution.profiles import DEFAULT_PROFILE, ExecutionProfile
from everturn.execution.records import BadMessage, build_message, parse_message
from everturn.execution.users import find_run_folder

_log = structlog.get_logger(__name__)

SANDBOX_UIDS: Final = UidRange(20_000, 20_999)
SUPERVISOR: Final = (sys.executable, "-I", "-m", "exec_supervisor")
"""The command of a supervisor without its mode."""

ASK_TIMEOUT_S: Final = 20.0
_QUESTION: Final = """
import importlib.util, json, sys
has_executor = importlib.util.find_spec("executor") is not None
print(json.dumps([sys.prefix, sys.base_prefix, "python%d.%d" % sys.version_info[:2], has_executor]))
"""
_USUAL_RUNTIME: Final = "runc"
"""What the walls of a local launcher are comparable to: namespaces, a filter and the kernel of the machine."""
_LIST_FILES: Final = """
import hashlib, importlib.metadata as metadata, sys
found = [f"python {sys.version}"]
for library in metadata.distributions():
    found.append(f"{library.metadata['Name']} {library.version}")
    found += [f"{file} {file.hash.value}" for file in library.files or () if file.hash and file.parts[0] != ".."
              and not file.parts[0].endswith(".dist-info")]
print(hashlib.sha256("\\n".join(sorted(found)).encode()).hexdigest())
"""
_LIBRARIES: Final = ("lib", "lib64", "lib32")
_PACKAGES: Final = ("site-packages", "dist-packages")
_MAX_SHARED: Final = 300
"""Maximum shared libraries to show individually. If there are more, as with conda, their whole folder is shown."""

BOOT_TIMEOUT_S: Final = 40.0
"""The supervisor gives its executor 30 s; its own start and the setup of the walls are extra."""

_MAX_ERROR_BYTES: Final = 4096


class LocalLauncher:
    """Starts a supervisor process for each run. It keeps no state between runs.

    `supervisor` is the command of the process, `executable` the program with which it isolates.
    """

    keeps_warm = False

    def __init__(
        self,
        executable: str,
        interpreter: Interpreter,
        profiles: Mapping[str, ExecutionProfile],
        uids: UidRange,
        supervisor: Sequence[str],
    ) -> None:
        self._executable = executable
        self._interpreter = interpreter
        self._profiles = profiles
        self._uids = uids
        self._supervisor = supervisor

    @contextlib.asynccontextmanager
    async def take(self, profile: str, run_name: str) -> AsyncGenerator[BootedSupervisor]:
        del run_name  # nothing of a process carries labels
        wanted = self._profiles.get(profile)
        if wanted is None:
            raise UnknownProfile(f"there is no execution profile {profile!r}")
        if need := find_container_need(wanted, self._profiles[DEFAULT_PROFILE]):
            raise SupervisorFailed(need)
        with _run_dir() as run_dir:
            boot = Boot(
                wanted.limits,
                self._interpreter,
                self._executable,
                run_dir,
                self._uids,
                wanted.preload,
                network=bool(wanted.network),
            )
            async with open_supervisor(self._supervisor, boot) as supervisor:
                yield supervisor


async def open_local_sandbox(
    executable: str,
    python: Path,
    profiles: Mapping[str, ExecutionProfile],
    uids: UidRange,
    supervisor: Sequence[str],
) -> SupervisedSandbox:
    """Verify by a trial boot that supervisors of this command can isolate with `executable`.

    `python` belongs to an environment with the executor and the scientific libraries. As root, each run gets one of
    `uids`; otherwise all run as the current user. Raises SandboxUnavailable if `python` can't be used or the default
    profile needs containers, and SupervisorFailed or OSError if the trial fails.
    """
    default = profiles[DEFAULT_PROFILE]
    if need := find_container_need(default, default):
        raise SandboxUnavailable(f"The execution profile {DEFAULT_PROFILE!r} needs containers: {need}.")
    launcher = LocalLauncher(executable, await load_interpreter(python), profiles, uids, supervisor)
    async with launcher.take(DEFAULT_PROFILE, TRIAL) as booted:
        return SupervisedSandbox(launcher, booted.posture, booted.limits)


def find_container_need(profile: ExecutionProfile, default: ExecutionProfile) -> str:
    """What a process of this machine can't give a profile; empty if there is nothing.

    All runs here have the libraries of one environment, which stands for the image of the default profile.
    """
    if profile.runtime not in ("", _USUAL_RUNTIME):
        return f"its runtime {profile.runtime!r} belongs to a container engine"
    if profile.executor_image != default.executor_image:
        return f"its image {profile.executor_image!r} is not that of the default profile"
    return ""


@contextlib.contextmanager
def _run_dir() -> Generator[str]:
    """The path of the run's folder. The supervisor creates and removes it; if it was killed, the rest is removed here.

    A folder created here would remain if we were killed before the supervisor knew of it.
    """
    run_dir = os.path.join(find_run_folder(), f"everturn-run-{secrets.token_hex(8)}")
    try:
        yield run_dir
    finally:
        with contextlib.suppress(FileNotFoundError):
            for folder, _, names in os.walk(run_dir, topdown=False):
                for name in names:
                    os.unlink(os.path.join(folder, name))
                os.rmdir(folder)


async def load_interpreter(python: Path, *, timeout_s: float = ASK_TIMEOUT_S) -> Interpreter:
    """Ask the interpreter where its own files are. Raises SandboxUnavailable if it does not run or answer, or has no
    executor."""
    place = Path.cwd() / python  # not resolved: a virtual environment is identified by the path of its link
    try:
        prefix, base_prefix, name, has_executor = await _query(place, timeout_s)
    except OSError as error:
        raise SandboxUnavailable(f"There is no sandbox environment at {place}.", "make setup") from error
    if not has_executor:
        raise SandboxUnavailable(f"The executor is not installed in the sandbox environment {prefix}.", "make setup")
    return find_parts(place, prefix, base_prefix, name)


async def load_environment_digest(python: Path, *, timeout_s: float = ASK_TIMEOUT_S) -> str:
    """`sha256:` and the digest of the interpreter's version, its libraries, and the hashes of their files, as recorded
    when they were installed. Equal environments at different places have one digest. Raises SandboxUnavailable."""
    try:
        status, answer, errors = await run_command(
            (str(Path.cwd() / python), "-I", "-c", _LIST_FILES), timeout_s=timeout_s
        )
    except OSError as error:  # a timeout is one
        raise SandboxUnavailable(
            f"The libraries of the sandbox's Python {python} could not be listed: {error}."
        ) from error
    if status != 0:
        reason = errors.decode(errors="replace")[-200:].strip()
        raise SandboxUnavailable(f"The libraries of the sandbox's Python {python} could not be listed: {reason}")
    return f"sha256:{answer.decode().strip()}"


def find_parts(python: Path, prefix: str, base_prefix: str, name: str) -> Interpreter:
    """The environment's folder, and the program, standard library and shared libraries of its base interpreter.

    Packages installed for the base interpreter are hidden: they belong to other projects. `name` is `python3.11`.
    """
    programs = [str(python), str(python.resolve())]
    bases = {base_prefix, os.path.realpath(base_prefix)}
    link = python
    while link.is_symlink():
        link = link.parent / link.readlink()
        programs.append(os.path.abspath(link))
        bases.add(os.path.abspath(link.parent.parent))
    bases.add(str(python.resolve().parent.parent))
    parts = {program for program in programs if not Path(program).is_relative_to(prefix)}
    hidden: set[str] = set()
    for library in (Path(base, part) for base in bases - {prefix} for part in _LIBRARIES):
        standard = library / name
        if standard.is_dir():
            parts.add(str(standard))
            hidden |= {str(folder) for folder in map(standard.joinpath, _PACKAGES) if folder.is_dir()}
        shared = {str(file) for file in library.glob("*.so*") if file.is_file()}
        parts |= {str(library)} if len(shared) > _MAX_SHARED else shared
    return Interpreter(str(python), (prefix, *sorted(parts)), tuple(sorted(hidden)))


async def _query(python: Path, timeout_s: float) -> tuple[str, str, str, bool]:
    try:
        status, answer, errors = await run_command((str(python), "-I", "-c", _QUESTION), timeout_s=timeout_s)
    except TimeoutError as error:
        # Not an OSError for the caller, although TimeoutError is one: the interpreter exists.
        raise SandboxUnavailable(f"The sandbox's Python {python} did not answer within {timeout_s:g} s.") from error
    if status != 0:
        raise SandboxUnavailable(f"The sandbox's Python {python} does not run: {errors.decode()[-200:].strip()}")
    return cast("tuple[str, str, str, bool]", tuple(json.loads(answer)))


@contextlib.asynccontextmanager
async def open_supervisor(command: Sequence[str], boot: Boot) -> AsyncGenerator[BootedSupervisor]:
    """Start and boot a supervisor. Raises SupervisorFailed with its error output, or OSError.

    When the block exits, the supervisor has ended: closing its stdin makes it kill the run.
    """
    async with _start(command) as process:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("the supervisor needs all three pipes")
        output, errors = process.stdout, process.stderr
        stream = FrameStream(output, CheckedWriter(process.stdin), FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True))
        posture = await boot_over(stream, boot, errors)
        yield BootedSupervisor(
            stream,
            posture,
            boot.limits,
            read_errors=lambda: read_tail(errors),
            load_hits=_no_hits,
            is_waiting=lambda: process.returncode is None and not output.at_eof(),
        )


async def boot_over(stream: FrameStream, boot: Boot, errors: asyncio.StreamReader) -> Posture:
    """Boot a new supervisor; returns its posture. Raises SupervisorFailed."""
    try:
        async with asyncio.timeout(BOOT_TIMEOUT_S):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await stream.send(build_message(boot), PIPE_FRAME_BYTES)
            frame = await stream.receive()
            if frame is None:
                raise SupervisorFailed(await read_tail(errors) or "the supervisor ended before it was ready")
            return read_ready({} if isinstance(frame, bytes) else frame)
    except TimeoutError as error:
        raise SupervisorFailed("the supervisor did not boot in time") from error
    except (FrameError, BadMessage) as error:
        raise SupervisorFailed(f"invalid frame from the supervisor: {error}") from error


def read_ready(frame: dict[str, object]) -> Posture:
    """The posture in a supervisor's first frame. Raises SupervisorFailed if it could not boot, or BadMessage."""
    match parse_message(frame, Ready, Finished):
        case Ready(posture=posture):
            return posture
        case Finished(detail=detail):
            raise SupervisorFailed(detail)


async def read_tail(errors: asyncio.StreamReader) -> str:
    """The last 4 KiB of a stream, read to its end."""
    kept = b""
    while chunk := await errors.read(_MAX_ERROR_BYTES):
        kept = (kept + chunk)[-_MAX_ERROR_BYTES:]
    return kept.decode("utf-8", "replace").strip()


async def _no_hits(finished: Finished) -> tuple[LimitName, ...]:
    """No hits: a local supervisor creates the control group itself and reports its hits in `Finished`."""
    return ()


@contextlib.asynccontextmanager
async def _start(command: Sequence[str]) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await wait_for_start(_start_process(command), _end)
    try:
        yield process
    finally:
        await _end(process)


async def _start_process(command: Sequence[str]) -> asyncio.subprocess.Process:
    # A session of its own: a Ctrl-C for the worker must not reach the run before the worker handles it.
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        cwd="/",
        start_new_session=True,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Cut the lifeline and wait; a supervisor that still runs after 2 s is killed, and its sandbox dies with it."""
    if process.stdin is not None:
        process.stdin.close()
    if await wait_for_end(process):
        return
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if not await wait_for_end(process):
        _log.error("Left a killed supervisor whose pipes are still open", pid=process.pid, timeout_s=END_WITHIN_S)
