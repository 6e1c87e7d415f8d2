"""Credentials in memory."""

from dataclasses import replace
from datetime import datetime

from everturn.accounts.credentials import ANY, ApiKey
from everturn.core.clock import Clock
from everturn.core.identity import Principal


class MemoryCredentials:
    """Implements Credentials and CredentialAdmin."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keys: dict[str, ApiKey] = {}
        self._cutoffs: dict[tuple[str, str, str], datetime] = {}
        self.asked = 0
        """How often a key or a cutoff was requested."""

    async def find_key(self, key_id: str) -> ApiKey | None:
        self.asked += 1
        if key_id in self._keys:
            today = self._clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
            self._keys[key_id] = replace(self._keys[key_id], last_used=today)
        return self._keys.get(key_id)

    async def find_cutoff(self, principal: Principal) -> datetime | None:
        self.asked += 1
        found = [
            self._cutoffs.get((tenant, project, principal.user_id))
            for tenant in (principal.tenant, ANY)
            for project in (principal.project, ANY)
        ]
        return max((moment for moment in found if moment is not None), default=None)

    async def save_key(self, key: ApiKey) -> None:
        self._keys[key.key_id] = key

    async def load_keys(self, *, tenant: str | None = None, limit: int = 1000) -> tuple[ApiKey, ...]:
        keys = [key for key in self._keys.values() if tenant in (None, key.owner.tenant)]
        return tuple(sorted(keys, key=lambda key: key.created_at, reverse=True)[:limit])

    async def revoke_key(self, key_id: str) -> bool:
        key = self._keys.get(key_id)
        if key is None or key.revoked_at is not None:
            return False
        self._keys[key_id] = replace(key, revoked_at=self._clock.now())
        return True

    async def save_cutoff(self, user_id: str, *, tenant: str = ANY, project: str = ANY) -> datetime:
        self._cutoffs[tenant, project, user_id] = self._clock.now()
        return self._clock.now()
