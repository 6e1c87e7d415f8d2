"""The mode `bubblewrap`: a supervisor as its worker's child, which builds the sandbox of its run on this machine.

The first message describes the sandbox. Staged folders, control group, gateway socket and bubblewrap end with the run.
"""

import contextlib
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.messages import (
    EXECUTOR_FRAME_BYTES,
    GATEWAY_SOCKET,
    OUTPUT_DIR,
    WORKDIR,
    Boot,
    LimitName,
    Posture,
    RunLimits,
)
from exec_supervisor.local.cgroups import Cgroup, try_create_cgroup
from exec_supervisor.local.folders import (
    SOCKET_NAME,
    Masked,
    MountPlan,
    build_mount_plan,
    load_masked,
    load_system_links,
    load_system_roots,
    make_run_dir,
    remove_run_dir,
)
from exec_supervisor.local.process import SandboxProcess, become_subreaper, load_memory_bytes, start_process
from exec_supervisor.local.seccomp import build_filter, describe_filter
from exec_supervisor.local.users import claim_user
from exec_supervisor.supervisor.lifeline import LifelineCut
from exec_supervisor.supervisor.listeners import open_listener
from exec_supervisor.supervisor.run import run_supervisor
from exec_supervisor.supervisor.standard_streams import ENDED_EARLY, LIFELINE, run_on_standard_streams
from exec_supervisor.supervisor.worker_line import WorkerLine

USER_LOCKS: Final = "everturn-users"
"""Folder next to those of the runs, with a locked file per user that has a run now."""
UID_INSIDE: Final = 1001
"""User and group that the program sees, whatever they are outside."""
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full")


def main() -> int:
    """Return the exit code: 1 when it was terminated before the result was sent."""
    return run_on_standard_streams(_serve)


async def _serve(line: WorkerLine) -> int:
    try:
        boot = await line.receive_boot()
    except LifelineCut:
        return ENDED_EARLY
    return await run_supervisor(line, LIFELINE, partial(open_sandbox, boot))


@dataclass(frozen=True, slots=True)
class BubblewrapSandbox:
    """A `Sandbox` made of namespaces on this machine."""

    process: SandboxProcess
    line: FrameStream
    listener: socket.socket
    cgroup: Cgroup | None
    posture: Posture

    def is_over_memory(self, limits: RunLimits) -> bool:
        return self.cgroup is None and load_memory_bytes(self.process.pid) > limits.memory_bytes

    def load_hits(self) -> tuple[LimitName, ...]:
        return self.cgroup.load_hits() if self.cgroup else ()

    def protect_runner(self) -> None:
        self.process.protect_runner()

    async def read_errors(self) -> str:
        return await self.process.read_errors()

    async def end(self) -> None:
        await self.process.end()


@contextlib.asynccontextmanager
async def open_sandbox(boot: Boot) -> AsyncGenerator[BubblewrapSandbox]:
    """Create everything and start bubblewrap; at the end kill it and leave nothing behind. Raises OSError."""
    run_dir = Path(boot.run_dir)
    become_subreaper()
    # A random name, because two workers can boot at the same moment.
    cgroup = try_create_cgroup(secrets.token_hex(8), boot.limits)
    async with contextlib.AsyncExitStack() as stack:
        if cgroup is not None:
            stack.callback(cgroup.remove)
        if os.geteuid() == 0:
            uid = gid = stack.enter_context(claim_user(boot.uids, run_dir.with_name(USER_LOCKS)))
        else:
            uid, gid = os.geteuid(), os.getegid()
        make_run_dir(run_dir)
        stack.callback(remove_run_dir, run_dir)
        plan = build_mount_plan(run_dir, (*load_system_roots(), *boot.interpreter.roots), boot.limits, uid)
        listener = stack.enter_context(open_listener(Path(plan.socket_dir) / SOCKET_NAME, mode=0o600, uid=uid, gid=gid))
        with _filter_file() as descriptor:
            command = build_command(boot, plan, load_system_links(), descriptor, load_masked())
            process = start_process(command, uid=uid, cgroup=cgroup, pass_fds=[descriptor])
        stack.callback(process.close_streams)
        stack.push_async_callback(process.end)
        reader, writer = await process.connect()
        line = FrameStream(reader, writer, FrameDecoder(EXECUTOR_FRAME_BYTES, allow_raw=True))
        yield BubblewrapSandbox(process, line, listener, cgroup, build_posture(uid, plan, cgroup))


def build_posture(uid: int, plan: MountPlan, cgroup: Cgroup | None) -> Posture:
    """Describe how the run is confined."""
    dropped = os.geteuid() == 0
    counted = f"cgroup v{cgroup.version}" if cgroup else ""
    return Posture(
        launcher="bubblewrap",
        runtime="",
        outer_uid=uid,
        user="a user that only this run has" if dropped else "the supervisor's own user, mapped to another one inside",
        network="none: a network namespace of its own",
        memory=f"{counted} and RLIMIT_AS" if cgroup else "RLIMIT_AS and a watchdog on the sum of resident memory",
        processes=f"{counted} and RLIMIT_NPROC" if cgroup else "RLIMIT_NPROC",
        disk="tmpfs limited in bytes and inodes" if plan.work else "tmpfs limited in bytes",
        seccomp=describe_filter(),
    )


def build_command(
    boot: Boot, plan: MountPlan, links: tuple[tuple[str, str], ...], seccomp_fd: int, masked: Masked
) -> list[str]:
    """Build the argument list. Bubblewrap's own environment must be empty: the program can read it in `/proc/1`."""
    uid = str(UID_INSIDE)
    command = [
        boot.executable,
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        # The runner is pid 1, which signals from inside can't reach, as in a container.
        "--as-pid-1",
    ]
    command += ["--clearenv", "--cap-drop", "ALL", "--uid", uid, "--gid", uid, "--hostname", "sandbox"]
    command += ["--seccomp", str(seccomp_fd), *_proc(masked)]
    for device in _DEVICES:
        command += ["--dev-bind", device, device]
    for target, place in (*links, ("/proc/self/fd", "/dev/fd")):
        command += ["--symlink", target, place]
    for bind in plan.read_only:
        command += ["--ro-bind", bind.source, bind.target]
    for folder in boot.interpreter.hidden:
        command += _empty_folder(folder)
    command += ["--ro-bind", plan.socket_dir, str(Path(GATEWAY_SOCKET).parent)]
    command += _workspace(plan.work, WORKDIR, boot.limits.work_dir_bytes)
    command += _workspace(plan.out, OUTPUT_DIR, boot.limits.out_dir_bytes)
    command += ["--remount-ro", "/", "--chdir", WORKDIR]
    command += ["--", boot.interpreter.python, "-I", "-B", "-X", "utf8", "-m", "executor"]
    return [*command, "--preload", ",".join(boot.preload)] if boot.preload else command


def _proc(masked: Masked) -> list[str]:
    """Read-only: otherwise a program could change its OOM score, the order in which processes are killed."""
    command = ["--proc", "/proc"]
    for path in masked.files:
        command += ["--ro-bind", "/dev/null", path]
    for path in masked.folders:
        command += _empty_folder(path)
    return [*command, "--remount-ro", "/proc"]


def _empty_folder(path: str) -> list[str]:
    return ["--perms", "0555", "--size", "4096", "--tmpfs", path, "--remount-ro", path]


def _workspace(staged: str | None, target: str, size_bytes: int) -> list[str]:
    if staged is not None:
        return ["--bind", staged, target]
    return ["--perms", "0700", "--size", str(size_bytes), "--tmpfs", target]


@contextlib.contextmanager
def _filter_file() -> Generator[int]:
    descriptor = os.memfd_create("seccomp")
    try:
        os.write(descriptor, build_filter())
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
