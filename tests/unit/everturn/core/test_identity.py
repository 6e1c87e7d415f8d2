"""Roles decide the lane."""

import pytest

from everturn.core.identity import Lane, Principal, Role, lane_of


@pytest.mark.parametrize(
    ("roles", "lane"),
    [
        ({Role.ADMIN}, Lane.PRIVILEGED),
        ({Role.PRIVILEGED, Role.ANONYMOUS}, Lane.PRIVILEGED),
        ({Role.PAID, Role.REGISTERED}, Lane.PAID),
        ({Role.REGISTERED}, Lane.REGISTERED),
        ({Role.REGISTERED, Role.ANONYMOUS}, Lane.REGISTERED),
        ({Role.ANONYMOUS}, Lane.ANONYMOUS),
        (set(), Lane.ANONYMOUS),
    ],
)
def test_the_strongest_role_decides_the_lane(roles: set[Role], lane: Lane) -> None:
    assert lane_of(frozenset(roles)) is lane


def test_a_principal_is_registered_by_default() -> None:
    assert Principal("t", "p", "u").roles == {Role.REGISTERED}


def test_ownership_does_not_depend_on_the_role() -> None:
    assert Principal("t", "p", "u", frozenset({Role.ADMIN})).owner == Principal("t", "p", "u").owner == ("t", "p", "u")


def test_principals_of_two_tenants_differ() -> None:
    assert Principal("a", "p", "u") != Principal("b", "p", "u")
