"""The limits that hold where the settings say nothing: by role, for calls that write and calls that read."""

from everturn.model.identity import Principal, Role
from everturn.model.limits.token_bucket import Limit, Limits

WRITES: Limits = {
    Role.ANONYMOUS: Limit(20, 60),
    Role.REGISTERED: Limit(120, 60),
    Role.PAID: Limit(600, 60),
    Role.PRIVILEGED: Limit(3000, 60),
    Role.ADMIN: Limit(3000, 60),
}
READS: Limits = {
    Role.ANONYMOUS: Limit(120, 60),
    Role.REGISTERED: Limit(1200, 60),
    Role.PAID: Limit(6000, 60),
    Role.PRIVILEGED: Limit(12000, 60),
    Role.ADMIN: Limit(12000, 60),
}
STRONGEST_FIRST = (Role.ADMIN, Role.PRIVILEGED, Role.PAID, Role.REGISTERED, Role.ANONYMOUS)


def strongest_role(roles: frozenset[Role]) -> Role:
    """The role whose limits hold for a principal."""
    return next((role for role in STRONGEST_FIRST if role in roles), Role.ANONYMOUS)


GUEST_PART = 4
"""All guests together hold at most one fourth of what a process has for everybody: anybody can be many guests."""


def is_guest(principal: Principal) -> bool:
    """Whether this is somebody without an account."""
    return strongest_role(principal.roles) is Role.ANONYMOUS
