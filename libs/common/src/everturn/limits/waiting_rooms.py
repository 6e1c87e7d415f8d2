"""Retry times for requests that found the queue full: each gets its own place, one after another.

A room stores the issued times, in microseconds, by visitor. A visitor that returns at its time is admitted, so the
issued times are reliable, and others can't use the places that are due. Others are admitted while there is room beyond
these places.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from everturn.limits.token_buckets import SECOND_US

PLACES_EACH: Final = 128
"""Times that one caller can hold: the requests that a registered user can send in a minute, so that each of many
clients of one user has its own time. A caller that invents new requests must not fill the room."""
MAX_PLACES: Final = 10_000
GRACE_US: Final = 10 * SECOND_US
"""How long a place is kept for a visitor that doesn't return."""
NEAR_US: Final = 5 * SECOND_US
"""Places due within this time are kept free, because turns end less evenly than estimated."""
SLACK_US: Final = SECOND_US // 2
"""A visitor that is early by up to this time counts as on time."""
STORING_US: Final = SECOND_US // 2
"""How long it takes to store an admitted request: a count this soon after the admission may not include it."""
MAX_AGE_US: Final = 5 * SECOND_US
"""No count is older."""
MAX_WAIT_US: Final = 600 * SECOND_US
SPACING: Final = 1.1
"""Places are this factor further apart than the estimated interval between ends of turns. Turns end unevenly: at the
exact interval, half of a long line would find the queue longer than estimated. The capacity this leaves is given to
other requests."""
OVER_ROOM: Final = 1.25
"""A visitor that returns on time is admitted even if the queue is too long, up to this multiple of its limit."""


def most_of(room: int) -> int:
    """The maximum length of the queue when visitors return on time."""
    return int(room * OVER_ROOM)


@dataclass(frozen=True, slots=True)
class Visitor:
    """The caller, and which of its requests this is: hashes. A request without a name can be any of its caller's."""

    caller: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class RoomLoad:
    """How many requests wait in the queue, how many may, and the microseconds until there is room for one more.

    The depth was counted `age_us` ago, and includes what this process admitted since; what other processes admitted
    since is added to it. None if other processes don't matter.
    """

    depth: int
    room: int
    interval_us: int
    age_us: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """Admitted, or told to return in `wait_s` seconds."""

    admitted: bool
    wait_s: float = 0.0


Place = tuple[Visitor, int]
"""The visitor, and the number of its place: requests without a name can have several, others have only number 0."""


@dataclass(frozen=True, slots=True)
class Told:
    """All issued times: places in this room, and passes for times issued by another room. A visitor that returns on
    time with a pass is admitted as from a place, but nothing is kept free for it."""

    places: Mapping[Place, int] = field(default_factory=dict[Place, int])
    passes: Mapping[Visitor, int] = field(default_factory=dict[Visitor, int])

    def times_of(self, caller: str) -> list[int]:
        """The times issued to a caller."""
        places = [at for (visitor, _), at in self.places.items() if visitor.caller == caller]
        return places + [at for visitor, at in self.passes.items() if visitor.caller == caller]


def enter_room(told: Told, visitor: Visitor, load: RoomLoad, now_us: int) -> tuple[Told, Entry]:
    """The new state, and the answer. Redis does the same in Lua (everturn.limits.redis)."""
    kept = _drop_late(told, now_us)
    mine = min((place for place in kept.places if place[0] == visitor), key=kept.places.__getitem__, default=None)
    known = [kept.places[mine]] if mine else []
    known += [kept.passes[visitor]] if visitor in kept.passes else []
    due = any(at <= now_us + SLACK_US for at in known)
    near = sum(at <= now_us + NEAR_US for at in kept.places.values())
    admitted = load.depth + near < load.room or (due and load.depth < most_of(load.room))
    if known and visitor.request and not (admitted or due):
        return kept, Entry(False, (known[0] - now_us) / SECOND_US)
    # A request without a name that is early can be another one than the request that got this time.
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
    """A visitor rejected by another room got its retry time there, and must not be rejected by this room. Only for a
    request with a name."""
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


# Retry times, shared by all processes of a service.


class WaitingRooms(Protocol):
    """An empty room expires."""

    async def enter(self, room: str, visitor: Visitor, load: RoomLoad) -> Entry:
        """Ask for admission, by the server's time; `room` is a hash. A place belongs to the request that received it.

        Raises Unavailable after at most 250 ms, also if the server can't write.
        """
        ...

    async def keep(self, room: str, visitor: Visitor, wait_s: float) -> None:
        """Another room told this visitor to return in `wait_s` seconds: then this room admits it too. Raises as
        `enter`."""
        ...
