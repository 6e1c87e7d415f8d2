"""A supervisor that builds the sandbox of its run on this machine. A launcher adds only the command that isolates.

The first message describes the sandbox. Staged folders, control group, gateway socket and process end with the run.
"""

import contextlib
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.messages import (
    ALLOWED_HOSTS_ONLY,
    EXECUTOR_FRAME_BYTES,
    Boot,
    LimitName,
    Posture,
    RunLimits,
)
from everturn.execution.users import USER_LOCKS, claim_user
from exec_supervisor.local.cgroups import Cgroup, try_create_cgroup
from exec_supervisor.local.folders import (
    NETWORK_SOCKET_NAME,
    SOCKET_NAME,
    MountPlan,
    build_mount_plan,
    load_system_roots,
    make_run_dir,
    remove_run_dir,
)
from exec_supervisor.local.process import SandboxProcess, become_subreaper, load_memory_bytes, start_process
from exec_supervisor.local.seccomp import build_filter
from exec_supervisor.supervisor.lifeline import LifelineCut
from exec_supervisor.supervisor.listeners import open_listener
from exec_supervisor.supervisor.network import BACKLOG
from exec_supervisor.supervisor.run import run_supervisor
from exec_supervisor.supervisor.standard_streams import ENDED_EARLY, LIFELINE, run_on_standard_streams
from exec_supervisor.supervisor.worker_line import WorkerLine

_RUNNER: Final = 1
_PROXY: Final = 1
"""The executor's processes, in which the program does not run."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """What distinguishes one launcher from another.

    `launcher` is its name in `LauncherName`. `build_command` returns the arguments of the process that isolates. The
    process starts with an empty environment, in the run's control group and as the run's user; its stdin and stdout are
    the line to the executor. It must show what the plan lists, hide `interpreter.hidden` of the boot message, load the
    system call filter from the descriptor, and run `build_executor_command`. `processes` is how many processes it adds
    to those inside. `network` and `seccomp` say in the posture what enforces these two restrictions; a program with a
    network has a loopback device of its own, and sockets that `build_filter` allows then.
    """

    launcher: str
    build_command: Callable[[Boot, MountPlan, int], Sequence[str]]
    processes: int
    network: str
    seccomp: str


def run_local(isolation: Isolation) -> int:
    """The whole mode of a launcher: one supervisor, a child of its worker. Returns the exit code: 1 when it was
    terminated before the result was sent."""
    return run_on_standard_streams(partial(_serve, isolation))


async def _serve(isolation: Isolation, line: WorkerLine) -> int:
    try:
        boot = await line.receive_boot()
    except LifelineCut:
        return ENDED_EARLY
    return await run_supervisor(line, LIFELINE, partial(open_sandbox, isolation, boot))


def build_executor_command(boot: Boot) -> list[str]:
    """The command to run inside."""
    command = [boot.interpreter.python, "-I", "-B", "-X", "utf8", "-m", "executor"]
    command += ["--network"] if boot.network else []
    return [*command, "--preload", ",".join(boot.preload)] if boot.preload else command


@dataclass(frozen=True, slots=True)
class LocalSandbox:
    """A `Sandbox` around one process of this machine."""

    process: SandboxProcess
    line: FrameStream
    listener: socket.socket
    network_listener: socket.socket | None
    cgroup: Cgroup | None
    posture: Posture

    def is_over_memory(self, limits: RunLimits) -> bool:
        return self.cgroup is None and load_memory_bytes(self.process.pid) > limits.memory_bytes

    def load_hits(self) -> tuple[LimitName, ...]:
        return self.cgroup.load_hits() if self.cgroup else ()

    def protect_runner(self) -> None:
        self.process.protect_runner()
        if self.network_listener:
            self.process.limit_tcp_buffers()

    async def read_errors(self) -> str:
        return await self.process.read_errors()

    async def end(self) -> None:
        await self.process.end()


@contextlib.asynccontextmanager
async def open_sandbox(isolation: Isolation, boot: Boot) -> AsyncGenerator[LocalSandbox]:
    """Create everything and start the process; at the end kill it and leave nothing behind. Raises OSError."""
    run_dir = Path(boot.run_dir)
    become_subreaper()
    # A random name, because two workers can boot at the same moment.
    cgroup = try_create_cgroup(secrets.token_hex(8), boot.limits, isolation.processes + _RUNNER + _PROXY * boot.network)
    async with contextlib.AsyncExitStack() as stack:
        if cgroup is not None:
            stack.callback(cgroup.remove)
        if os.geteuid() == 0:
            uid = gid = stack.enter_context(claim_user(boot.uids, run_dir.with_name(USER_LOCKS), "SANDBOX_UIDS"))
        else:
            uid, gid = os.geteuid(), os.getegid()
        make_run_dir(run_dir)
        stack.callback(remove_run_dir, run_dir)
        roots = (*load_system_roots(network=boot.network), *boot.interpreter.roots)
        plan = build_mount_plan(run_dir, roots, boot.limits, uid)
        open_socket = partial(open_listener, mode=0o600, uid=uid, gid=gid)
        sockets = Path(plan.socket_dir)
        listener = stack.enter_context(open_socket(sockets / SOCKET_NAME))
        network_listener = (
            stack.enter_context(open_socket(sockets / NETWORK_SOCKET_NAME, backlog=BACKLOG)) if boot.network else None
        )
        with _filter_file(network=boot.network) as descriptor:
            command = isolation.build_command(boot, plan, descriptor)
            process = start_process(command, uid=uid, cgroup=cgroup, pass_fds=[descriptor])
        stack.callback(process.close_streams)
        stack.push_async_callback(process.end)
        reader, writer = await process.connect()
        line = FrameStream(reader, writer, FrameDecoder(EXECUTOR_FRAME_BYTES, allow_raw=True))
        posture = build_posture(isolation, uid, plan, cgroup, network=boot.network)
        yield LocalSandbox(process, line, listener, network_listener, cgroup, posture)


def build_posture(
    isolation: Isolation, uid: int, plan: MountPlan, cgroup: Cgroup | None, *, network: bool = False
) -> Posture:
    """Describe how the run is confined."""
    dropped = os.geteuid() == 0
    counted = f"cgroup v{cgroup.version}" if cgroup else ""
    return Posture(
        launcher=isolation.launcher,
        runtime="",
        outer_uid=uid,
        user="a user that only this run has" if dropped else "the supervisor's own user, mapped to another one inside",
        network=ALLOWED_HOSTS_ONLY if network else isolation.network,
        memory=f"{counted} and RLIMIT_AS" if cgroup else "RLIMIT_AS and a watchdog on the sum of resident memory",
        processes=f"{counted} and RLIMIT_NPROC" if cgroup else "RLIMIT_NPROC",
        disk="tmpfs limited in bytes and inodes" if plan.work else "tmpfs limited in bytes",
        seccomp=f"{isolation.seccomp}{', and TCP' if network else ''}",
    )


@contextlib.contextmanager
def _filter_file(*, network: bool) -> Generator[int]:
    descriptor = os.memfd_create("seccomp")
    try:
        os.write(descriptor, build_filter(network=network))
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
