"""Bytes of bodies are counted by user and process until their requests end."""

from collections.abc import Callable

import pytest

from everturn.core.identity import Principal, Role
from ingress.admission.limits import BodyBudget
from ingress.errors import ProblemError
from ingress.metrics import IngressMetrics

ANN, BEN = Principal("t", "p", "ann"), Principal("t", "p", "ben")


@pytest.fixture
def budget() -> BodyBudget:
    return BodyBudget(max_bytes=150, max_bytes_per_user=100, metrics=IngressMetrics())


def refusal(call: Callable[[], object]) -> int:
    with pytest.raises(ProblemError) as refused:
        call()
    assert "Retry-After" in (refused.value.headers or {})
    return refused.value.status_code


def test_a_user_above_its_cap_gets_429_and_a_full_process_gives_503(budget: BodyBudget) -> None:
    first, second = budget.open(ANN), budget.open(BEN)
    first.grow(90)

    assert refusal(lambda: first.grow(11)) == 429
    assert refusal(lambda: second.grow(61)) == 503
    second.grow(60)
    assert budget.total == 150


def test_what_is_announced_is_refused_before_it_is_read(budget: BodyBudget) -> None:
    assert refusal(lambda: budget.open(ANN).check_announced(101)) == 429
    assert budget.total == 0


def test_what_was_released_counts_no_longer_and_only_once(budget: BodyBudget) -> None:
    hold = budget.open(ANN)
    hold.grow(100)

    hold.release()
    hold.release()

    assert budget.total == 0
    budget.open(ANN).grow(100)


def test_a_part_can_be_given_back_and_nothing_twice(budget: BodyBudget) -> None:
    hold = budget.open(ANN)
    hold.grow(100)

    hold.shrink(60)
    left = budget.total
    hold.release()
    hold.shrink(40)

    assert (left, budget.total) == (40, 0)


def test_the_bodies_of_all_guests_together_have_a_part(budget: BodyBudget) -> None:
    one, other = (Principal("t", "p", f"guest~{n}", frozenset({Role.ANONYMOUS})) for n in range(2))
    first = budget.open(one)
    first.grow(30)

    assert refusal(lambda: budget.open(other).grow(30)) == 503
    budget.open(ANN).grow(90)
    first.release()

    budget.open(other).grow(30)
