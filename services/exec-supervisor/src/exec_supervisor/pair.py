"""The mode `pair`: a supervisor in its own container, which accepts the line of its executor in another container.

Its line to the worker is its standard streams, which the broker has attached, or a connection that it opens itself.

It reports that it is ready for a run when the executor has connected. The engine builds and removes the sandbox: the
broker that started the pair kills the executor's container when this process is gone. The executor is the first process
of its container, so all its descendants end with it.
"""

import argparse
import asyncio
import contextlib
import select
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.messages import (
    ALLOWED_HOSTS_ONLY,
    EXECUTOR_FRAME_BYTES,
    GATEWAY_SOCKET,
    LINE_SOCKET,
    NETWORK_SOCKET,
    Dial,
    LimitName,
    Posture,
    RunLimits,
)
from exec_supervisor.supervisor.dialed_line import BrokerPort, run_on_dialed_line
from exec_supervisor.supervisor.listeners import load_peer_uid, open_listener
from exec_supervisor.supervisor.network import BACKLOG
from exec_supervisor.supervisor.run import run_supervisor
from exec_supervisor.supervisor.standard_streams import LIFELINE, run_on_standard_streams
from exec_supervisor.supervisor.worker_line import WorkerLine

EXECUTOR_UID: Final = 1001
"""The user if the broker names none, and always the group that can use the pair's sockets."""

CONNECT_TIMEOUT_S: Final = 60.0
"""Both containers start at the same time; the executor can finish its imports before it connects."""

_GONE_WAIT_S: Final = 1.0
_CHECK_EVERY_S: Final = 0.005
_MAX_STRANGERS: Final = 16
_FOR_GROUP: Final = 0o660


def main() -> int:
    """Return the exit code: 1 when it was terminated before the result was sent."""
    parser = argparse.ArgumentParser(prog="exec_supervisor pair", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(LINE_SOCKET).parent, help="where the pair's sockets are")
    parser.add_argument("--executor-uid", type=int, default=EXECUTOR_UID, help="user of this pair's executor")
    parser.add_argument("--network", action="store_true", help="give the program the connections of the worker")
    in_pod = parser.add_argument_group("in a Pod, where the line is a connection to the broker")
    in_pod.add_argument("--dial", default="", help="host:port of the broker")
    in_pod.add_argument("--certificate", default="", help="the broker's certificate, as DER in base64")
    in_pod.add_argument("--pair", default="", help="the pair's name")
    in_pod.add_argument("--token", default="", help="what admits this pair's supervisor, once")
    in_pod.add_argument("--seccomp", default="", help="the executor's seccomp profile, for the posture")
    chosen = parser.parse_args(sys.argv[2:])
    if not chosen.dial:
        posture = build_posture(chosen.executor_uid, network=chosen.network)
        return run_on_standard_streams(partial(_serve, chosen.folder, posture, lifeline=LIFELINE))
    host, _, port = chosen.dial.rpartition(":")
    return run_on_dialed_line(
        BrokerPort(host.strip("[]"), int(port), chosen.certificate),
        Dial(chosen.pair, chosen.token),
        partial(_serve, chosen.folder, build_pod_posture(chosen.executor_uid, chosen.seccomp)),
    )


async def _serve(folder: Path, posture: Posture, line: WorkerLine, lifeline: int) -> int:
    return await run_supervisor(line, lifeline, partial(open_sandbox, folder, posture, EXECUTOR_UID))


@dataclass(frozen=True, slots=True)
class PairSandbox:
    """A `Sandbox` that the engine has built."""

    line: FrameStream
    listener: socket.socket
    network_listener: socket.socket | None
    posture: Posture
    writer: asyncio.StreamWriter

    def is_over_memory(self, limits: RunLimits) -> bool:
        """Always False: the engine's control group enforces the limit."""
        del limits
        return False

    def load_hits(self) -> tuple[LimitName, ...]:
        """Always empty: the engine reports them to the broker."""
        return ()

    def protect_runner(self) -> None:
        """Does nothing: processes of another container are not visible here."""

    async def read_errors(self) -> str:
        """Always empty: the executor's stderr belongs to its own container."""
        return ""

    async def end(self) -> None:
        """Close the line, and wait a second for the executor to end; otherwise it is killed when this process has
        ended."""
        if self.writer.is_closing():
            return
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_GONE_WAIT_S):
                self.writer.write_eof()
                await self._wait_for_hangup()
        self.writer.transport.abort()

    async def _wait_for_hangup(self) -> None:
        """Return when both directions are closed. It does not read, because another task may be reading."""
        hangup = select.poll()
        hangup.register(self.writer.get_extra_info("socket").fileno(), 0)
        while not self.writer.is_closing() and not hangup.poll(0):  # noqa: ASYNC110 - a hangup alone, without reading, is not an event of the loop
            await asyncio.sleep(_CHECK_EVERY_S)


@contextlib.asynccontextmanager
async def open_sandbox(folder: Path, posture: Posture, group: int) -> AsyncGenerator[PairSandbox]:
    """Wait for the executor, whose user `posture` names, in the folder that both containers share.

    Raises OSError, TimeoutError after a minute.
    """
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(_socket_in(folder, GATEWAY_SOCKET, group))
        has_network = posture.network == ALLOWED_HOSTS_ONLY
        network = stack.enter_context(_socket_in(folder, NETWORK_SOCKET, group)) if has_network else None
        with _socket_in(folder, LINE_SOCKET, group) as listener:
            peer = await _wait_for_executor(listener, posture.outer_uid)
        # No process connects to this socket any more: the program has not started, and the name is removed.
        reader, writer = await asyncio.open_unix_connection(sock=peer)
        stack.callback(writer.transport.abort)
        line = FrameStream(reader, writer, FrameDecoder(EXECUTOR_FRAME_BYTES, allow_raw=True))
        yield PairSandbox(line, gateway, network, posture, writer)


def build_posture(executor_uid: int, *, network: bool = False) -> Posture:
    """Describe how the run is confined."""
    return Posture(
        launcher="containers",
        runtime="",
        outer_uid=executor_uid,
        user="a user that only this run has, in a container without capabilities, with a read-only root",
        network=ALLOWED_HOSTS_ONLY if network else "none (a container without a network device)",
        memory="control group of the container engine, without swap, and RLIMIT_AS",
        processes="control group of the container engine",
        disk="tmpfs limited in bytes and inodes",
        seccomp=f"profile of our own, loaded by the container engine{', with TCP sockets' if network else ''}",
    )


def build_pod_posture(executor_uid: int, seccomp: str) -> Posture:
    """Describe how a run in a Pod is confined. `seccomp` is the name of a profile of the node; empty for the default of
    its container runtime."""
    profile = f"profile {seccomp} of the node" if seccomp else "default profile of the node's container runtime"
    return Posture(
        launcher="containers",
        runtime="",
        outer_uid=executor_uid,
        user="a user that only this run has, in a container of a Pod without capabilities, with a read-only root",
        network="none (only Unix sockets, by a filter of the executor; the supervisor has the network of the Pod)",
        memory="control group of the container, and RLIMIT_AS",
        processes="RLIMIT_NPROC of the user, or the control group if the node limits the processes of containers",
        disk="memory volumes limited in bytes, not in files, and one file on the node limited by RLIMIT_FSIZE",
        seccomp=f"{profile}, and a filter of the executor for sockets",
    )


@contextlib.contextmanager
def _socket_in(folder: Path, name: str, group: int) -> Generator[socket.socket]:
    path = folder / Path(name).name
    with open_listener(path, mode=_FOR_GROUP, gid=group, backlog=BACKLOG) as listener:
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


async def _wait_for_executor(listener: socket.socket, executor_uid: int) -> socket.socket:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await _accept(listener, executor_uid)
    except TimeoutError as error:
        raise TimeoutError(f"the executor did not connect within {CONNECT_TIMEOUT_S:g} s") from error


async def _accept(listener: socket.socket, executor_uid: int) -> socket.socket:
    """Accept the first connection of the executor's user; reject a few of others."""
    loop = asyncio.get_running_loop()
    for _ in range(_MAX_STRANGERS):
        peer, _ = await loop.sock_accept(listener)
        if load_peer_uid(peer) == executor_uid:
            return peer
        peer.close()
    raise ConnectionRefusedError("a process other than the executor connected to its socket")
