"""What a run happens in, whoever built it: the line to an executor, the gateway's socket, and what can be found out."""

import socket
from typing import Protocol

from everturn.execution.framing import FrameStream
from everturn.execution.messages import LimitName, Posture, RunLimits


class Room(Protocol):
    """Walls with an executor inside. Who opened it closes it; nothing of it is left then."""

    @property
    def line(self) -> FrameStream:
        """Leads to the executor."""
        ...

    @property
    def listener(self) -> socket.socket:
        """The gateway's socket; only the program's user may connect."""
        ...

    @property
    def posture(self) -> Posture:
        """What holds the run; the executor's own words are not in it yet."""
        ...

    def is_over_memory(self, limits: RunLimits) -> bool:
        """Whether the run holds more than it may, where no one else would step in."""
        ...

    def load_hits(self) -> tuple[LimitName, ...]:
        """The limits at which the kernel stepped in, as far as they can be seen from here."""
        ...

    def protect_runner(self) -> None:
        """Let the kernel end the program before its runner when memory runs out. Called once both are there."""
        ...

    async def read_errors(self) -> str:
        """What was said on the executor's stderr, the first 4 KiB; returns at its end."""
        ...

    async def end(self) -> None:
        """Kill everything inside and wait until it is gone. May be repeated. Raises TimeoutError after 2 s."""
        ...
