"""When those who found the queue full are to come back: each is told a place of its own, one after another.

A room holds what was told, in microseconds, by visitor. Who comes when told is let in, so what was told is true; nobody
else takes the places that are due. The rest is let in while there is room beyond them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from everturn.limits.token_buckets import SECOND_US

PLACES_EACH: Final = 128
"""Told times that one caller may hold: all that a registered user may ask for in a minute, so that each of many clients
of one user has a time of its own. One that makes up new requests must not fill the room."""
MAX_PLACES: Final = 10_000
GRACE_US: Final = 10 * SECOND_US
"""How long a place is kept for who doesn't come."""
NEAR_US: Final = 5 * SECOND_US
"""Places due within this time are kept free: turns don't end as evenly as they are told to."""
SLACK_US: Final = SECOND_US // 2
"""So much earlier than told counts as told."""
STORING_US: Final = SECOND_US // 2
"""How long it takes to store what was let in: when it was let in so much before a count, that may not have seen it."""
MAX_AGE_US: Final = 5 * SECOND_US
"""No count is older."""
MAX_WAIT_US: Final = 600 * SECOND_US
SPACING: Final = 1.1
"""Places are told this much further apart than turns are thought to end. Ends come unevenly: at the exact pace half of
a long line would find the queue longer than thought. Room that comes of it goes to whoever asks."""
OVER_ROOM: Final = 1.25
"""Who comes when told is let in even if the queue is longer than it should be, up to this part of it."""


def most_of(room: int) -> int:
    """How long the queue may get when those come who were told to."""
    return int(room * OVER_ROOM)


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks, and which of its requests this is: hashes. A request without a name may be any of its caller's."""

    caller: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class RoomLoad:
    """How many wait in the queue, how many may, and how long it takes until one more can (microseconds).

    The depth was counted `age_us` ago, and what the asking process let in since is in it. What others let in since is
    added to it. None where nobody need know of others.
    """

    depth: int
    room: int
    interval_us: int
    age_us: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """Let in, or told to come in so many seconds."""

    admitted: bool
    wait_s: float = 0.0


Place = tuple[Visitor, int]
"""Whose it is, and which one: who gives its request no name may have several, others have the one with number 0."""


@dataclass(frozen=True, slots=True)
class Told:
    """Who was told when: places in this room, and what another room told. Who comes then with a pass is let in as from
    a place, but nothing is kept free for it."""

    places: Mapping[Place, int] = field(default_factory=dict[Place, int])
    passes: Mapping[Visitor, int] = field(default_factory=dict[Visitor, int])

    def times_of(self, caller: str) -> list[int]:
        """When a caller was told to come."""
        places = [at for (visitor, _), at in self.places.items() if visitor.caller == caller]
        return places + [at for visitor, at in self.passes.items() if visitor.caller == caller]


def enter_room(told: Told, visitor: Visitor, load: RoomLoad, now_us: int) -> tuple[Told, Entry]:
    """What is told afterwards, and the answer. Redis does the same in Lua (everturn.limits.redis)."""
    kept = _drop_late(told, now_us)
    mine = min((place for place in kept.places if place[0] == visitor), key=kept.places.__getitem__, default=None)
    known = [kept.places[mine]] if mine else []
    known += [kept.passes[visitor]] if visitor in kept.passes else []
    due = any(at <= now_us + SLACK_US for at in known)
    near = sum(at <= now_us + NEAR_US for at in kept.places.values())
    admitted = load.depth + near < load.room or (due and load.depth < most_of(load.room))
    if known and visitor.request and not (admitted or due):
        return kept, Entry(False, (known[0] - now_us) / SECOND_US)
    # What has no name and comes early may be another request than the one that was told this time.
    if due or visitor.request:
        kept = Told(
            {place: at for place, at in kept.places.items() if place != mine},
            {other: at for other, at in kept.passes.items() if other != visitor},
        )
    if admitted:
        return kept, Entry(True)
    apart_us = int(load.interval_us * SPACING)
    last_us = max(kept.places.values(), default=0)
    at = max(now_us + max(1, load.depth + 1 - load.room) * apart_us, last_us + apart_us)
    return _tell(kept, visitor, min(at, now_us + MAX_WAIT_US), now_us)


def keep_pass(told: Told, visitor: Visitor, wait_us: int, now_us: int) -> Told:
    """Who was refused in another room is told to come then, and must not be refused in this one. Only for a request
    with a name."""
    kept = _drop_late(told, now_us)
    if not visitor.request or len(kept.times_of(visitor.caller)) >= PLACES_EACH:
        return kept
    return Told(kept.places, {**kept.passes, visitor: now_us + min(wait_us, MAX_WAIT_US)})


def _tell(kept: Told, visitor: Visitor, at_us: int, now_us: int) -> tuple[Told, Entry]:
    own = kept.times_of(visitor.caller)
    if len(own) >= PLACES_EACH:
        return kept, Entry(False, (max(own) - now_us) / SECOND_US)
    if len(kept.places) >= MAX_PLACES:
        return kept, Entry(False, MAX_WAIT_US / SECOND_US)
    free = next((visitor, n) for n in range(PLACES_EACH) if (visitor, n) not in kept.places)
    return Told({**kept.places, free: at_us}, kept.passes), Entry(False, (at_us - now_us) / SECOND_US)


def _drop_late(told: Told, now_us: int) -> Told:
    late_us = now_us - GRACE_US
    return Told(
        {place: at for place, at in told.places.items() if at > late_us},
        {visitor: at for visitor, at in told.passes.items() if at > late_us},
    )


# Who was told to come back when, shared by all processes of a service.


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
