"""Removing what is older than it may be, across tenants and in bounded batches."""

from collections.abc import Collection, Mapping
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
    """Several workers may ask at once: no conversation is given to two.

    What counts as happening: turns, and that its person renamed, archived or judged it. That it is read, or judged by a
    machine, doesn't.
    """

    async def load_due(
        self, *, days: int, limit: int, skip: Collection[ConversationId] = ()
    ) -> tuple[ConversationId, ...]:
        """At most `limit` conversations at rest in which nothing happened for so many days, the oldest first."""
        ...

    async def try_erase(self, conversation_id: ConversationId, *, days: int) -> Expired | None:
        """Erase the rows of one that is still due, however many they are; None when it isn't, or another has it.

        It may take minutes. Raises Unavailable.
        """
        ...

    async def remove_expired_rows(self, *, days: int, limit: int) -> Mapping[str, int]:
        """Remove idempotency rows that ran out and, unless `days` is 0, older rows of the ledgers; counts by table."""
        ...
