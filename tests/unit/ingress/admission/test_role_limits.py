"""Every role has limits, and the strongest role of a principal decides."""

import pytest

from everturn.core.identity import Role
from ingress.admission.limits import READS, STRONGEST_FIRST, WRITES, strongest_role


def test_every_role_has_a_limit_for_writes_and_for_reads() -> None:
    assert set(WRITES) == set(READS) == set(STRONGEST_FIRST) == set(Role)


@pytest.mark.parametrize(
    ("roles", "strongest"),
    [
        ({Role.REGISTERED, Role.PAID}, Role.PAID),
        ({Role.ADMIN, Role.ANONYMOUS}, Role.ADMIN),
        (set[Role](), Role.ANONYMOUS),
    ],
)
def test_the_strongest_role_decides(roles: set[Role], strongest: Role) -> None:
    assert strongest_role(frozenset(roles)) is strongest
