"""When those who found the queue full are to come back: each is told a place of its own, one after another.

A room holds what was told, in microseconds, by visitor. Who comes when told is let in, so what was told is true; nobody
else takes the places that are due. The rest is let in while there is room beyond them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from everturn.model.limits.token_bucket import SECOND_US

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
MAX_WAIT_US: Final = 600 * SECOND_US
LATER: Final = 1.1
"""Places are told this much further apart than turns are thought to end. Ends come unevenly: at the exact pace half of
a long line would find the queue longer than thought. Room that comes of it goes to whoever asks."""
OVER_ROOM: Final = 1.25
"""Who comes when told is let in even if the queue is longer than it should be, up to this part of it."""


def most_of(room: int) -> int:
    """How long the queue may get when those come who were told to."""
    return int(room * OVER_ROOM)


UNNAMED: Final = "-"
"""Begins the places of requests without a name; no hash has it."""
PASS: Final = "+"  # noqa: S105 - opens no door but this
"""Begins the passes: what another room told. Who comes then is let in as from a place, but nothing is kept free."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks, and which of its requests this is: hashes. A request without a name may be any of its caller's."""

    caller: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class RoomLoad:
    """How many wait in the queue, how many may, and how long it takes until one more can (microseconds)."""

    depth: int
    room: int
    interval_us: int


@dataclass(frozen=True, slots=True)
class Entry:
    """Let in, or told to come in so many seconds."""

    admitted: bool
    wait_s: float = 0.0


Place = tuple[str, str]
"""A caller, and the name of its place or pass."""
Told = Mapping[Place, int]
"""Who was told when."""


def enter_room(told: Told, visitor: Visitor, load: RoomLoad, now_us: int) -> tuple[Told, Entry]:
    """What is told afterwards, and the answer. Redis does the same in Lua (everturn.redis.waiting_rooms)."""
    kept = _drop_late(told, now_us)
    own = _own(kept, visitor.caller)
    name = visitor.request or min((name for name in own if name.startswith(UNNAMED)), key=own.__getitem__, default="")
    due = any(own[at] <= now_us + SLACK_US for at in (name, PASS + name) if at in own)
    near = sum(at <= now_us + NEAR_US and name[0] != PASS for (_, name), at in kept.items())
    admitted = load.depth + near < load.room or (due and load.depth < most_of(load.room))
    if name in own and visitor.request and not (admitted or due):
        return kept, Entry(False, (own[name] - now_us) / SECOND_US)
    # What has no name and comes early may be another request than the one that was told this time.
    if due or visitor.request:
        kept.pop((visitor.caller, name), None)
        kept.pop((visitor.caller, PASS + name), None)
    if admitted:
        return kept, Entry(True)
    apart_us = int(load.interval_us * LATER)
    at = max(now_us + max(1, load.depth + 1 - load.room) * apart_us, max(_places(kept), default=0) + apart_us)
    return _tell(kept, visitor, min(at, now_us + MAX_WAIT_US), now_us)


def keep_pass(told: Told, visitor: Visitor, wait_us: int, now_us: int) -> Told:
    """Who was refused in another room is told to come then, and must not be refused in this one. Only for a request
    with a name."""
    kept = _drop_late(told, now_us)
    if visitor.request and len(_own(kept, visitor.caller)) < PLACES_EACH:
        kept[visitor.caller, PASS + visitor.request] = now_us + min(wait_us, MAX_WAIT_US)
    return kept


def _tell(kept: dict[Place, int], visitor: Visitor, at_us: int, now_us: int) -> tuple[Told, Entry]:
    own = _own(kept, visitor.caller)
    if len(own) >= PLACES_EACH:
        return kept, Entry(False, (max(own.values()) - now_us) / SECOND_US)
    if len(kept) >= MAX_PLACES and len(_places(kept)) >= MAX_PLACES:
        return kept, Entry(False, MAX_WAIT_US / SECOND_US)
    name = visitor.request or next(free for n in range(PLACES_EACH) if (free := f"{UNNAMED}{n}") not in own)
    return {**kept, (visitor.caller, name): at_us}, Entry(False, (at_us - now_us) / SECOND_US)


def _places(told: Told) -> list[int]:
    return [at for (_, name), at in told.items() if name[0] != PASS]


def _drop_late(told: Told, now_us: int) -> dict[Place, int]:
    return {place: at for place, at in told.items() if at > now_us - GRACE_US}


def _own(told: Told, caller: str) -> dict[str, int]:
    return {name: at for (owner, name), at in told.items() if owner == caller}
