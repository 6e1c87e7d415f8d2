"""Credentials that this platform stores: API keys, and cutoff times before which a person's credentials are
rejected."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from everturn.core.identity import Principal

ANY = "*"
"""In a cutoff: every tenant, or every project. Neither can have this name."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A stored key: the hash (sha256, hexadecimal) of its secret, never the secret. It authenticates as its owner."""

    key_id: str
    secret_hash: str
    owner: Principal
    label: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used: datetime | None = None
    """The day of its last use, at midnight UTC."""


class Credentials(Protocol):
    """Queries before the caller is authenticated; so they take no Principal, and answer about one credential."""

    async def find_key(self, key_id: str) -> ApiKey | None:
        """A key, even if it is revoked or expired; saves today as the day of its last use."""
        ...

    async def find_cutoff(self, principal: Principal) -> datetime | None:
        """The time up to which this person's credentials are rejected; None if nothing was revoked."""
        ...


class CredentialAdmin(Protocol):
    """For operators, over all tenants. Services have no access."""

    async def save_key(self, key: ApiKey) -> None:
        """Store a new key."""
        ...

    async def load_keys(self, *, tenant: str | None = None, limit: int = 1000) -> tuple[ApiKey, ...]:
        """Keys, newest first; of one tenant or of all."""
        ...

    async def revoke_key(self, key_id: str) -> bool:
        """Revoke a key. False if there is none, or it was revoked before."""
        ...

    async def save_cutoff(self, user_id: str, *, tenant: str = ANY, project: str = ANY) -> datetime:
        """Reject all credentials that this person received until now. Returns the time by the database's clock."""
        ...
