"""A run in two containers, seen from the supervisor's: the other one's line, taken once, and the gateway's socket.

The walls are the engine's, and so is their end: who started the pair kills the executor's container when this process
is gone. The executor is the first process of its container, so all it started ends with it.
"""

import asyncio
import contextlib
import select
import socket
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.messages import EXECUTOR_FRAME_BYTES, GATEWAY_SOCKET, LINE_SOCKET, LimitName, Posture, RunLimits
from exec_supervisor.supervisor.listeners import load_peer_uid, open_listener

CONNECT_TIMEOUT_S: Final = 60.0
"""Both containers are started at once; the executor's imports may be done before it connects."""

_GONE_WAIT_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.005
_MAX_STRANGERS: Final = 16
_FOR_GROUP: Final = 0o660


@dataclass(frozen=True, slots=True)
class PairRoom:
    """A `Room` whose walls the engine has built."""

    line: FrameStream
    listener: socket.socket
    posture: Posture
    writer: asyncio.StreamWriter

    def is_over_memory(self, limits: RunLimits) -> bool:
        """Never: the engine's control group counts."""
        del limits
        return False

    def load_hits(self) -> tuple[LimitName, ...]:
        """None: the engine tells them to whoever started the pair."""
        return ()

    def protect_runner(self) -> None:
        """Nothing: processes of another container can't be seen from here."""

    async def read_errors(self) -> str:
        """Nothing: the executor's stderr is its own container's."""
        return ""

    async def end(self) -> None:
        """Hang up, and wait a second for the executor to end; one that stays is killed when this process has ended."""
        if self.writer.is_closing():
            return
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_GONE_WAIT_S):
                self.writer.write_eof()
                await self._wait_for_hangup()
        self.writer.transport.abort()

    async def _wait_for_hangup(self) -> None:
        """Returns when both directions are closed; without reading, for another task may be at that."""
        hangup = select.poll()
        hangup.register(self.writer.get_extra_info("socket").fileno(), 0)
        while not self.writer.is_closing() and not hangup.poll(0):  # noqa: ASYNC110 - a hangup alone, without reading, is no event of the loop
            await asyncio.sleep(_LOOK_EVERY_S)


@contextlib.asynccontextmanager
async def open_room(folder: Path, executor_uid: int, group: int) -> AsyncGenerator[PairRoom]:
    """Wait for the executor in the folder that both containers share. Raises OSError, TimeoutError after a minute."""
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(_socket_in(folder, GATEWAY_SOCKET, group))
        with _socket_in(folder, LINE_SOCKET, group) as listener:
            peer = await _wait_for_executor(listener, executor_uid)
        # Nobody connects to this one any more: the program is not there yet, and the name is gone.
        reader, writer = await asyncio.open_unix_connection(sock=peer)
        stack.callback(writer.transport.abort)
        line = FrameStream(reader, writer, FrameDecoder(EXECUTOR_FRAME_BYTES, allow_raw=True))
        yield PairRoom(line, gateway, build_posture(executor_uid), writer)


def build_posture(executor_uid: int) -> Posture:
    """What holds the run and by what means."""
    return Posture(
        launcher="containers",
        runtime="",
        outer_uid=executor_uid,
        user="a user of this run alone, in a container without capabilities, with a read-only root",
        network="none: a container without a network device",
        memory="control group of the container engine, without swap, and RLIMIT_AS",
        processes="control group of the container engine",
        disk="tmpfs limited in bytes and inodes",
        seccomp="profile of our own, loaded by the container engine",
    )


@contextlib.contextmanager
def _socket_in(folder: Path, name: str, group: int) -> Generator[socket.socket]:
    path = folder / Path(name).name
    with open_listener(path, mode=_FOR_GROUP, gid=group) as listener:
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
    """The first connection of the executor's user; a few of others are turned away."""
    loop = asyncio.get_running_loop()
    for _ in range(_MAX_STRANGERS):
        peer, _ = await loop.sock_accept(listener)
        if load_peer_uid(peer) == executor_uid:
            return peer
        peer.close()
    raise ConnectionRefusedError("others than the executor connect to its line")
