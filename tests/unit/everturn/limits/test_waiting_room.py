"""Of those who come back exactly when they were told, at least 95 of 100 are let in, whatever the others do."""

import heapq
import math
import random
from dataclasses import dataclass, field

import pytest

from everturn.limits.token_buckets import SECOND_US
from everturn.limits.waiting_rooms import (
    GRACE_US,
    MAX_PLACES,
    MAX_WAIT_US,
    PLACES_EACH,
    Entry,
    RoomLoad,
    Told,
    Visitor,
    enter_room,
)


@dataclass
class Rush:
    """A queue that workers drain, and clients that come back when told; times in microseconds."""

    rng: random.Random
    room: int
    slots: int
    turn_s: float
    patience: float = 1.0
    """How many of those refused come back."""
    callers: int = MAX_PLACES
    """How many users these clients belong to."""
    named: bool = True
    """Whether each client names its request, as by an Idempotency-Key."""
    misjudged: float = 1.0
    """What the estimate is of the real duration of turns."""
    told: Told = field(default_factory=Told)
    depth: int = 0
    busy: list[int] = field(default_factory=list[int])
    returned: int = 0
    let_in: int = 0
    deepest: int = 0

    def run(self, arrivals_s: list[float]) -> None:
        calls = [(int(at * SECOND_US), n, False) for n, at in enumerate(arrivals_s)]
        heapq.heapify(calls)
        while calls:
            now, n, again = heapq.heappop(calls)
            self._drain(now)
            interval_us = int(self.turn_s * self.misjudged / self.slots * SECOND_US)
            visitor = Visitor(f"c{n % self.callers}", f"r{n}" if self.named else "")
            self.told, entry = enter_room(self.told, visitor, RoomLoad(self.depth, self.room, interval_us), now)
            self.returned += again
            self.let_in += again and entry.admitted
            self.depth += entry.admitted
            self.deepest = max(self.deepest, self.depth)
            if not entry.admitted and self.rng.random() < self.patience:
                heapq.heappush(calls, (now + max(1, math.ceil(entry.wait_s)) * SECOND_US, n, True))

    def _drain(self, now: int) -> None:
        while self.depth and (len(self.busy) < self.slots or self.busy[0] <= now):
            start = heapq.heappop(self.busy) if len(self.busy) == self.slots else now
            self.depth -= 1
            heapq.heappush(self.busy, start + int(self.rng.expovariate(1 / self.turn_s) * SECOND_US))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("slots", "factor", "patience", "misjudged"),
    # The work grows with the square of those who wait: many times too many come to a small room.
    [(40, 3, 1.0, 1.0), (15, 10, 1.0, 1.0), (15, 5, 0.5, 1.0), (40, 3, 1.0, 1.3), (40, 3, 1.0, 0.9)],
)
def test_who_waits_as_told_is_let_in(seed: int, slots: int, factor: int, patience: float, misjudged: float) -> None:
    rng = random.Random(seed)
    rush = Rush(rng, room=5 * slots, slots=slots, turn_s=2.0, patience=patience, misjudged=misjudged)
    arrivals = [rng.random() * 60 for _ in range(slots // 2 * factor * 30)]

    rush.run(arrivals)

    assert rush.returned >= 100
    assert rush.let_in >= 0.95 * rush.returned
    assert rush.deepest <= 1.25 * rush.room


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("callers", [1, 3])
def test_clients_of_one_user_that_all_come_at_once_are_let_in_when_told(seed: int, callers: int) -> None:
    rush = Rush(random.Random(seed), room=40, slots=10, turn_s=2.0, callers=callers)

    rush.run([n / 1000 for n in range(160)])

    assert rush.returned >= 100
    assert rush.let_in >= 0.95 * rush.returned
    assert rush.deepest <= 1.25 * rush.room


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("callers", "clients", "over_s"), [(1, 120, 10), (3, 300, 30), (20, 900, 60)])
def test_clients_of_a_few_users_that_come_one_after_another_take_no_place_of_each_other(
    seed: int, callers: int, clients: int, over_s: int
) -> None:
    rng = random.Random(seed)
    rush = Rush(rng, room=40, slots=10, turn_s=2.0, callers=callers)

    rush.run([rng.random() * over_s for _ in range(clients)])

    assert rush.returned >= 15
    assert rush.let_in >= 0.95 * rush.returned
    assert rush.deepest <= 1.25 * rush.room


def test_a_user_that_makes_up_requests_holds_only_its_share_of_places() -> None:
    told, entry = Told(), Entry(True)
    for n in range(2 * PLACES_EACH):
        told, entry = enter_room(told, Visitor("c", f"r{n}"), RoomLoad(10, 10, SECOND_US), 0)

    assert len(told.places) == PLACES_EACH
    assert entry.wait_s == max(told.places.values()) / SECOND_US


def test_places_that_nobody_takes_are_given_away_after_a_while() -> None:
    load = RoomLoad(10, 10, SECOND_US)
    told = Told()
    for n in range(5):
        told, _ = enter_room(told, Visitor(f"c{n}"), load, 0)

    told, entry = enter_room(told, Visitor("late"), RoomLoad(9, 10, SECOND_US), 6 * SECOND_US + GRACE_US)

    assert entry.admitted
    assert told == Told()


def test_a_room_holds_no_more_than_it_may() -> None:
    told = Told({(Visitor(f"c{n}"), 0): SECOND_US for n in range(MAX_PLACES)})

    after, entry = enter_room(told, Visitor("one more"), RoomLoad(10, 10, SECOND_US), 0)

    assert len(after.places) == MAX_PLACES
    assert entry.wait_s == MAX_WAIT_US / SECOND_US
