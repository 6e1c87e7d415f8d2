"""Copying a conversation up to the end of a turn."""

from dataclasses import dataclass
from typing import Protocol

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.model.life.forks import Fork
from everturn.ports.inbox import IdempotencyKey


@dataclass(frozen=True, slots=True)
class ForkWish:
    """`fork_id` is a fresh id; without `turn_id` the last ended turn is meant, without `title` the source's."""

    fork_id: ConversationId
    turn_id: TurnId | None = None
    title: str | None = None


class Forks(Protocol):
    """One transaction each."""

    async def fork(
        self, principal: Principal, source_id: ConversationId, wish: ForkWish, key: IdempotencyKey | None
    ) -> Fork:
        """Copy blocks, ended turns, their signals, artifact rows and the source pool; objects are shared.

        Raises NotFound for a conversation or a turn that is not there, Conflict when the turn has not ended or none
        has, KeyReused, and KeyBusy when a twin did not commit in 2 s.
        """
        ...
