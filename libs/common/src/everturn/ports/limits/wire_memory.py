"""The memory of the wire: how much of it is used, by whom, and what may be removed."""

from dataclasses import dataclass
from typing import Protocol

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.model.leases import EventCursor


@dataclass(frozen=True, slots=True)
class WireUse:
    """Bytes: used in all, what may be used (0: unlimited), and the events of one user."""

    used: int
    limit: int
    of_user: int = 0

    @property
    def share(self) -> float:
        """The used part of the limit; 0 without a limit."""
        return self.used / self.limit if self.limit else 0.0


class WireMemory(Protocol):
    """All calls raise Unavailable when the wire is down."""

    async def load_use(self, owner: Principal | None = None) -> WireUse:
        """Within 250 ms, because accepting a message waits for it."""
        ...

    async def check(self) -> None:
        """Raises Unavailable also when little is left."""
        ...

    async def note_ended(self, conversation_id: ConversationId, owner: Principal, last: EventCursor) -> None:
        """Clients were told that a turn ended, with the event `last`: its events are not needed for long."""
        ...

    async def trim_ended(self) -> int:
        """Remove the events of turns whose end was noted some time ago; how many ends those were. Called every 10 s,
        it leaves no such event for longer than a minute."""
        ...
