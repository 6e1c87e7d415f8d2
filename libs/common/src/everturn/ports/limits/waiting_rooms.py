"""Who was told to come back when, shared by all processes of a service."""

from typing import Protocol

from everturn.model.limits.waiting_room import Entry, RoomLoad


class WaitingRooms(Protocol):
    """A room that nobody waits in is forgotten."""

    async def enter(self, room: str, caller: str, load: RoomLoad) -> Entry:
        """Ask to be let in, by the server's time; `room` and `caller` are made of hashes.

        Raises Unavailable after at most 250 ms, also where the server can't write.
        """
        ...
