"""What one run owns on this machine: staged folders, control group, gateway socket, bubblewrap; all end with it."""

import contextlib
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn.wire.execution import MIB, PIPE_FRAME_BYTES, Launch, Posture
from everturn.wire.framing import FrameDecoder, FrameStream
from exec_supervisor.supervisor.bwrap import build_command, load_system_links, load_system_roots
from exec_supervisor.supervisor.cgroups import Cgroup, try_create_cgroup
from exec_supervisor.supervisor.child import SandboxChild, become_subreaper, start_child
from exec_supervisor.supervisor.gateway import open_listener
from exec_supervisor.supervisor.mounts import SOCKET_NAME, Stage, build_stage, make_run_dir, remove_stage
from exec_supervisor.supervisor.seccomp import build_filter, describe_filter

_EXTRA_ADDRESS_SPACE_BYTES: Final = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Room:
    """The run's parts and what holds it; `line` leads to the executor."""

    child: SandboxChild
    line: FrameStream
    listener: socket.socket
    cgroup: Cgroup | None
    posture: Posture


@contextlib.asynccontextmanager
async def open_room(launch: Launch) -> AsyncGenerator[Room]:
    """Make everything and start bubblewrap; at the end kill it and leave nothing behind. Raises OSError."""
    run_dir = Path(launch.run_dir)
    uid = launch.sandbox_uid if os.geteuid() == 0 else os.geteuid()
    become_subreaper()
    # Two workers may run the same execution at once: a taken-over one, or the trial that each makes at its start.
    cgroup = try_create_cgroup(f"{launch.execution_id}-{secrets.token_hex(4)}", launch.limits)
    async with contextlib.AsyncExitStack() as stack:
        if cgroup is not None:
            stack.callback(cgroup.remove)
        make_run_dir(run_dir)
        stack.callback(remove_stage, run_dir)
        stage = build_stage(run_dir, (*load_system_roots(), *launch.interpreter.roots), launch.limits, uid)
        listener = stack.enter_context(open_listener(str(Path(stage.socket_dir) / SOCKET_NAME), uid))
        with _filter_file() as descriptor:
            command = build_command(launch, stage, load_system_links(), descriptor)
            child = start_child(command, uid=uid, cgroup=cgroup, pass_fds=[descriptor])
        stack.callback(child.close_streams)
        stack.push_async_callback(child.end)
        reader, writer = await child.connect()
        line = FrameStream(reader, writer, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True))
        yield Room(child, line, listener, cgroup, build_posture(uid, stage, cgroup))


def limit_address_space(launch: Launch) -> int:
    """RLIMIT_AS in bytes. Libraries reserve far more than they touch, hence the allowance above the memory limit."""
    return launch.limits.memory_bytes + _EXTRA_ADDRESS_SPACE_BYTES


def build_posture(uid: int, stage: Stage, cgroup: Cgroup | None) -> Posture:
    """What holds the run and by what means."""
    dropped = os.geteuid() == 0
    counted = f"cgroup v{cgroup.version}" if cgroup else ""
    return Posture(
        launcher="bubblewrap",
        runtime="",
        outer_uid=uid,
        user=f"uid {uid} outside" if dropped else f"uid {uid} outside, the supervisor's own; mapped inside",
        network="none: a network namespace of its own",
        memory=f"{counted} and RLIMIT_AS" if cgroup else "RLIMIT_AS and a watchdog on the sum of resident memory",
        processes=f"{counted} and RLIMIT_NPROC" if cgroup else "RLIMIT_NPROC",
        disk="tmpfs limited in bytes and inodes" if stage.work else "tmpfs limited in bytes",
        seccomp=describe_filter(),
    )


@contextlib.contextmanager
def _filter_file() -> Generator[int]:
    descriptor = os.memfd_create("seccomp")
    try:
        os.write(descriptor, build_filter())
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
