"""Removing what is older than it may be, across tenants and in bounded batches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId


@dataclass(frozen=True, slots=True)
class Expired:
    """A conversation whose rows are gone; its events and objects are the caller's to remove, in its owner's name."""

    conversation_id: ConversationId
    owner: Principal
    object_keys: tuple[str, ...]
    rows: int


class Retention(Protocol):
    """Several workers may ask at once: no conversation is given to two."""

    async def erase_expired(self, *, days: int, limit: int) -> tuple[Expired, ...]:
        """Erase conversations at rest in which nothing happened for so many days; at most `limit`, the oldest first."""
        ...

    async def remove_expired_rows(self, *, days: int, limit: int) -> Mapping[str, int]:
        """Remove idempotency rows that ran out and, unless `days` is 0, older rows of the ledgers; counts by table."""
        ...
