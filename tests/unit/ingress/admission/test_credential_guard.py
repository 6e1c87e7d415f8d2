"""Guessing is limited, and callers with a good credential are served."""

import pytest

from everturn.limits.token_buckets import Limit
from everturn_testing.core import FixedClock
from ingress.admission.limits import KNOWN_S, CredentialGuard
from ingress.errors import ProblemError, absent, unauthorized
from ingress.metrics import IngressMetrics


class World:
    """A guard that accepts three bad credentials a minute from an address."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.guard = CredentialGuard(Limit(3, 60), metrics=IngressMetrics(), monotonic=self.clock.monotonic)

    def try_one(self, credential: str, *, good: bool = False, address: str = "a") -> int:
        """The status that a check ends in."""
        try:
            with self.guard.watching(address, credential):
                if not good:
                    raise unauthorized("No.")
        except ProblemError as refusal:
            return refusal.status_code
        return 200


def test_after_some_bad_credentials_an_address_waits() -> None:
    world = World()

    assert [world.try_one(f"bad{n}") for n in range(5)] == [401, 401, 401, 429, 429]
    assert world.try_one("bad", address="b") == 401


def test_while_it_waits_not_even_a_good_guess_passes() -> None:
    world = World()
    for n in range(3):
        world.try_one(f"bad{n}")

    assert world.try_one("good", good=True) == 429
    world.clock.advance(20)
    assert world.try_one("good", good=True) == 200


def test_a_credential_known_as_good_passes_beside_a_guesser() -> None:
    world = World()
    world.try_one("good", good=True)
    for n in range(3):
        world.try_one(f"bad{n}")

    assert world.try_one("good", good=True) == 200
    world.clock.advance(KNOWN_S - 20)
    for n in range(3):
        world.try_one(f"bad{n}")
    world.clock.advance(20)
    for n in range(3):
        world.try_one(f"bad{n}")
    assert world.try_one("good", good=True) == 429


def test_one_that_became_bad_is_known_no_longer() -> None:
    world = World()
    world.try_one("key", good=True)

    assert [world.try_one("key") for _ in range(5)] == [401, 401, 401, 429, 429]


def test_nothing_is_guessed_without_a_credential_or_by_other_refusals() -> None:
    world = World()

    assert [world.try_one("") for _ in range(5)] == [401] * 5
    for _ in range(5):
        with pytest.raises(ProblemError), world.guard.watching("a", "token"):
            raise absent()
    assert world.try_one("bad") == 401
