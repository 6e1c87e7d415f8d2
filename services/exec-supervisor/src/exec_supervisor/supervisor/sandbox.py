"""The environment of a run, whichever launcher built it: the line to an executor, the gateway's socket, and
observations."""

import socket
from typing import Protocol

from everturn.execution.framing import FrameStream
from everturn.execution.messages import LimitName, Posture, RunLimits


class Sandbox(Protocol):
    """A sandbox with an executor inside. Its opener closes it and leaves nothing behind."""

    @property
    def line(self) -> FrameStream:
        """The line to the executor."""
        ...

    @property
    def listener(self) -> socket.socket:
        """The gateway's socket; only the program's user can connect."""
        ...

    @property
    def network_listener(self) -> socket.socket | None:
        """The socket for connections to the network; None for a program without one."""
        ...

    @property
    def posture(self) -> Posture:
        """How the run is confined, without the executor's own report."""
        ...

    def is_over_memory(self, limits: RunLimits) -> bool:
        """Whether the run exceeds its memory limit; only for sandboxes where nothing else enforces it."""
        ...

    def load_hits(self) -> tuple[LimitName, ...]:
        """The limits that the kernel enforced, as far as they are visible here."""
        ...

    def protect_runner(self) -> None:
        """Make the kernel kill the program before its runner when memory runs out. Called once both exist."""
        ...

    async def read_errors(self) -> str:
        """The first 4 KiB of the executor's stderr; returns at its end."""
        ...

    async def end(self) -> None:
        """Kill everything inside and wait until it is gone. Can be repeated. Raises TimeoutError after 2 s."""
        ...
