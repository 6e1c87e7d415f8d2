"""Who was told to come back when, shared by all processes of a service."""

from typing import Protocol

from everturn.model.limits.waiting_room import Entry, RoomLoad, Visitor


class WaitingRooms(Protocol):
    """A room that nobody waits in is forgotten."""

    async def enter(self, room: str, visitor: Visitor, load: RoomLoad) -> Entry:
        """Ask to be let in, by the server's time; `room` is made of a hash. A place is the request's that was told.

        Raises Unavailable after at most 250 ms, also where the server can't write.
        """
        ...

    async def keep(self, room: str, visitor: Visitor, wait_s: float) -> None:
        """Another room told this visitor to come in so many seconds: then it is let in here too. Raises as `enter`."""
        ...
