"""Callers and their proofs: the result of every authentication method; and the syntax of user names."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from everturn.core.identity import Principal, read_roles

Kind = Literal["local", "token", "key", "guest"]
"""Development mode, a bearer token of the issuer, an API key, or a guest token of this server."""

_SCOPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+|=~-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Proof:
    """How a principal was authenticated. Holds no secret, so it can be kept as long as a stream is open."""

    kind: Kind
    issued_at: float | None = None
    """Unix time at which the credential was created; None if unknown."""
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal and the Unix time at which its credential expires; None if it does not expire."""

    principal: Principal
    expires_at: float | None = None
    proof: Proof = field(default=Proof("local"))


def build_record(caller: Caller) -> dict[str, Any]:
    """A caller as JSON, to be signed."""
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
    """The caller that `build_record` encoded; this server has signed the record."""
    roles = read_roles(record["roles"])
    who = Principal(record["tenant"], record["project"], record["user"], roles, record.get("person", ""))
    return Caller(who, record["until"], Proof(record["kind"], record["issued"], record["key"]))


def is_scope_name(text: str) -> bool:
    """Whether `text` is a valid name of a tenant or project: 1 to 64 letters, digits, `.`, `_`, `-`."""
    return _SCOPE.fullmatch(text) is not None


def is_user_name(text: str) -> bool:
    """Whether `text` is a valid user name: 1 to 128 characters as in subjects and mail addresses."""
    return _USER.fullmatch(text) is not None
