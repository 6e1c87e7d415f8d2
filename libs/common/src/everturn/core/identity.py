"""Who acts: a principal is a user of one tenant and project, with roles; every repository call names one."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from everturn.core.open_values import OpenEnum, report_unknown

Owner = tuple[str, str, str]
"""The owner of something: tenant, project and user, in any role."""


class Role(StrEnum):
    """The rights of a principal; they also determine the lane of its turns."""

    ANONYMOUS = "anonymous"
    REGISTERED = "registered"
    PAID = "paid"
    PRIVILEGED = "privileged"
    ADMIN = "admin"


class Lane(OpenEnum):
    """A doorbell list that workers listen to. CONTROL has a slot of its own."""

    PRIVILEGED = "privileged"
    PAID = "paid"
    REGISTERED = "registered"
    ANONYMOUS = "anonymous"
    CONTROL = "control"

    @classmethod
    def fallback(cls) -> "Lane":
        """Turns of a lane that only a newer version knows still run, behind all others."""
        return cls.ANONYMOUS


def read_roles(names: Collection[str]) -> frozenset[Role]:
    """Stored roles. A role that this version does not know grants nothing."""
    known = {role.value: role for role in Role}
    for name in (name for name in names if name not in known):
        report_unknown("Role", name)
    return frozenset(known[name] for name in names if name in known)


@dataclass(frozen=True, slots=True)
class Principal:
    """A user of one tenant and project."""

    tenant: str
    project: str
    user_id: str
    roles: frozenset[Role] = frozenset({Role.REGISTERED})
    person: str = field(default="", compare=False)
    """Identifies the person across tenants and projects, from the credential; empty if that identifies only this
    user."""

    @property
    def limited_as(self) -> str:
        """The key that limits count by: the person, who can reach many tenants and projects, otherwise this user of
        one."""
        return self.person or "\0".join(self.owner)

    @property
    def owner(self) -> Owner:
        return self.tenant, self.project, self.user_id


def lane_of(roles: frozenset[Role]) -> Lane:
    """The lane of a principal's turns: that of its strongest role."""
    if Role.ADMIN in roles or Role.PRIVILEGED in roles:
        return Lane.PRIVILEGED
    if Role.PAID in roles:
        return Lane.PAID
    return Lane.REGISTERED if Role.REGISTERED in roles else Lane.ANONYMOUS
