"""Who acts: a principal is a user of one tenant and project, with roles; every repository call names one."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from everturn.core.open_values import OpenEnum, report_unknown


class Role(StrEnum):
    """What a principal may do; also decides the lane of its turns."""

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
    def stand_in(cls) -> "Lane":
        """Turns of a lane that only a newer version knows still run, behind all others."""
        return cls.ANONYMOUS


def read_roles(names: Collection[str]) -> frozenset[Role]:
    """Stored roles. One that this version does not know grants nothing here."""
    known = {role.value: role for role in Role}
    for name in (name for name in names if name not in known):
        report_unknown("Role", name)
    return frozenset(known[name] for name in names if name in known)


Owner = tuple[str, str, str]
"""Whose something is: tenant, project and user, whatever the roles."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A user of one tenant and project."""

    tenant: str
    project: str
    user_id: str
    roles: frozenset[Role] = frozenset({Role.REGISTERED})
    person: str = field(default="", compare=False)
    """Who this is in every tenant and project, as the credential says it; empty where it names only this user."""

    @property
    def limited_as(self) -> str:
        """By whom limits count: the person, who may reach many tenants and projects, and else this user of one."""
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
