"""Who asks, and what proved it: the values that every way in ends with, and how names of users are written."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from everturn.core.identity import Principal, read_roles

Kind = Literal["local", "token", "key", "guest"]
"""Development mode, a bearer token of the issuer, an API key, a guest token of ours."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What proved a principal. It holds no secret, so it may be kept as long as a stream is open."""

    kind: Kind
    issued_at: float | None = None
    """Unix time at which the credential was made; None where it doesn't say."""
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal and until when (Unix time) its credential is good; None for ever."""

    principal: Principal
    expires_at: float | None = None
    proof: Proof = field(default=Proof("local"))


def build_record(caller: Caller) -> dict[str, Any]:
    """A caller as JSON, for a seal."""
    who, proof = caller.principal, caller.proof
    return {
        "tenant": who.tenant,
        "project": who.project,
        "user": who.user_id,
        "roles": sorted(who.roles),
        "until": caller.expires_at,
        "kind": proof.kind,
        "issued": proof.issued_at,
        "key": proof.key_id,
        "person": who.person,
    }


def read_record(record: dict[str, Any]) -> Caller:
    """The caller that `build_record` wrote down; the record comes out of our own seal."""
    roles = read_roles(record["roles"])
    who = Principal(record["tenant"], record["project"], record["user"], roles, record.get("person", ""))
    return Caller(who, record["until"], Proof(record["kind"], record["issued"], record["key"]))


# The grammar of tenant, project and user names: bounded, and nothing that means something in a key or a path.

_SCOPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+|=~-]{0,127}", re.ASCII)


def is_scope_name(text: str) -> bool:
    """Whether `text` may name a tenant or a project: 1 to 64 letters, digits, `.`, `_`, `-`."""
    return _SCOPE.fullmatch(text) is not None


def is_user_name(text: str) -> bool:
    """Whether `text` may name a user: 1 to 128 characters as in subjects and mail addresses."""
    return _USER.fullmatch(text) is not None
