"""Credentials that this platform keeps: API keys, and from when on a person's older credentials are refused."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from everturn.core.identity import Principal

ANY = "*"
"""In a cutoff: every tenant, or every project. No name of either can be this."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is kept: the hash (sha256, hexadecimal) of its secret, never the secret. It speaks for its owner."""

    key_id: str
    secret_hash: str
    owner: Principal
    label: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used: datetime | None = None
    """The day on which it was last used, at midnight UTC."""


class Credentials(Protocol):
    """What a service asks before it knows who asks; so these take no Principal, and answer about one credential."""

    async def find_key(self, key_id: str) -> ApiKey | None:
        """A key, also one that is revoked or has expired; notes the day as that of its last use."""
        ...

    async def find_cutoff(self, principal: Principal) -> datetime | None:
        """The time up to which this person's credentials are refused; None where nothing was revoked."""
        ...


class CredentialAdmin(Protocol):
    """What an operator does, over all tenants. No service may."""

    async def save_key(self, key: ApiKey) -> None:
        """Keep a new key."""
        ...

    async def load_keys(self, *, tenant: str | None = None, limit: int = 1000) -> tuple[ApiKey, ...]:
        """Keys, newest first; of one tenant or of all."""
        ...

    async def revoke_key(self, key_id: str) -> bool:
        """Whether there was such a key that was not revoked before."""
        ...

    async def save_cutoff(self, user_id: str, *, tenant: str = ANY, project: str = ANY) -> datetime:
        """Refuse what this person got until now. Returns the time by the database's clock."""
        ...
