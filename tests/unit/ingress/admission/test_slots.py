"""Streams are counted per user and per process."""

import pytest

from everturn.core.identity import Principal, Role
from ingress.admission.slots import OpenSlots
from ingress.errors import ProblemError

ANN, BOB = Principal("t", "p", "ann"), Principal("t", "p", "bob")


def test_a_user_at_its_cap_gets_429_and_others_are_served() -> None:
    slots = OpenSlots(max_total=10, max_per_user=2)
    slots.acquire(ANN)
    slots.acquire(ANN)

    with pytest.raises(ProblemError) as refused:
        slots.acquire(ANN)
    slots.acquire(BOB)

    assert refused.value.status_code == 429
    assert refused.value.headers and "Retry-After" in refused.value.headers
    assert slots.total == 3


def test_a_full_process_answers_503() -> None:
    slots = OpenSlots(max_total=1, max_per_user=5)
    slots.acquire(ANN)

    with pytest.raises(ProblemError) as refused:
        slots.acquire(BOB)

    assert refused.value.status_code == 503


def test_a_slot_given_back_is_free_again_and_leaves_nothing_behind() -> None:
    slots = OpenSlots(max_total=1, max_per_user=1)

    for _ in range(3):
        slots.acquire(ANN)
        slots.release(ANN)

    assert slots.total == 0


def test_a_slot_is_given_back_only_when_the_stream_was_not_opened() -> None:
    slots = OpenSlots(max_total=5, max_per_user=5)

    with slots.until_handed_over(ANN):
        pass
    with pytest.raises(ValueError, match="no"), slots.until_handed_over(BOB):
        raise ValueError("no")

    assert slots.total == 1


def test_all_guests_share_a_part_and_leave_the_rest_to_users() -> None:
    slots = OpenSlots(max_total=8, max_per_user=5)
    guests = [Principal("t", "p", f"guest~{n}", frozenset({Role.ANONYMOUS})) for n in range(3)]
    slots.acquire(guests[0])
    slots.acquire(guests[1])

    with pytest.raises(ProblemError) as refused:
        slots.acquire(guests[2])
    slots.acquire(ANN)
    slots.release(guests[0])
    slots.acquire(guests[2])

    assert refused.value.status_code == 503
    assert slots.total == 3


def test_a_slot_is_held_as_long_as_its_block_runs() -> None:
    slots = OpenSlots(max_total=1, max_per_user=1)

    with slots.holding(ANN):
        held = slots.total
    with pytest.raises(ValueError, match="no"), slots.holding(ANN):
        raise ValueError("no")

    assert (held, slots.total) == (1, 0)
