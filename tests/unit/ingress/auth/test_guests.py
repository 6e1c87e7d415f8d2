"""Guests are accepted where the settings allow it, each as a separate user, and in a limited number."""

import pytest

from everturn.core.identity import Lane, Role, lane_of
from everturn_testing.core import FixedClock
from ingress.auth.callers import is_user_name
from ingress.auth.signed_tokens import GUEST_S, WINDOW_S, Guests, TokenSigner
from ingress.errors import ProblemError

SEALS = TokenSigner(b"0123456789abcdef0123456789abcdef")
HERE = frozenset({("t", "p")})


def status_of(refused: pytest.ExceptionInfo[ProblemError]) -> int:
    return refused.value.status_code


def test_two_guests_are_two_users_with_the_weakest_role() -> None:
    guests = Guests(SEALS, FixedClock(), scopes=HERE)

    one, other = guests.admit("t", "p"), guests.admit("t", "p")

    who = guests.check(one.token)
    assert who.principal.user_id == one.user_id != other.user_id
    assert who.principal.roles == {Role.ANONYMOUS}
    assert lane_of(who.principal.roles) is Lane.ANONYMOUS
    assert is_user_name(one.user_id)


def test_where_guests_are_disabled_new_and_old_ones_are_refused() -> None:
    token = Guests(SEALS, FixedClock(), scopes=HERE).admit("t", "p").token
    closed = Guests(SEALS, FixedClock())

    with pytest.raises(ProblemError) as asked:
        closed.admit("t", "p")
    with pytest.raises(ProblemError) as shown:
        closed.check(token)

    assert (status_of(asked), status_of(shown)) == (403, 401)


def test_another_tenant_accepts_no_guests() -> None:
    with pytest.raises(ProblemError) as refused:
        Guests(SEALS, FixedClock(), scopes=HERE).admit("other", "p")

    assert status_of(refused) == 404


def test_a_guest_token_expires() -> None:
    clock = FixedClock()
    guests = Guests(SEALS, clock, scopes=HERE)
    token = guests.admit("t", "p").token

    clock.advance(GUEST_S)

    with pytest.raises(ProblemError) as refused:
        guests.check(token)
    assert status_of(refused) == 401


def test_too_many_new_guests_get_retry_after_and_are_then_accepted() -> None:
    clock = FixedClock()
    guests = Guests(SEALS, clock, scopes=HERE, per_minute=2)
    guests.admit("t", "p")
    clock.advance(WINDOW_S / 2)
    guests.admit("t", "p")

    with pytest.raises(ProblemError) as refused:
        guests.admit("t", "p")

    assert status_of(refused) == 429
    assert refused.value.headers is not None
    clock.advance(float(refused.value.headers["Retry-After"]))
    assert guests.admit("t", "p")


@pytest.mark.parametrize("token", ["evg_", "evg_x.y", "evg_e30.e30"])
def test_a_forged_guest_is_refused(token: str) -> None:
    with pytest.raises(ProblemError) as refused:
        Guests(SEALS, FixedClock(), scopes=HERE).check(token)

    assert status_of(refused) == 401


def test_one_address_does_not_use_up_the_places_of_others() -> None:
    clock = FixedClock()
    guests = Guests(SEALS, clock, scopes=HERE, per_minute=10, per_minute_of_address=2)
    for _ in range(2):
        guests.admit("t", "p", "192.0.2.1")

    with pytest.raises(ProblemError) as refused:
        guests.admit("t", "p", "192.0.2.1")

    assert refused.value.status_code == 429
    assert int((refused.value.headers or {})["Retry-After"]) >= 1
    assert guests.admit("t", "p", "192.0.2.2")
    clock.advance(60)
    assert guests.admit("t", "p", "192.0.2.1")
