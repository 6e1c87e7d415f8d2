"""Forks: the ids that copied rows get, how texts that name the old ones change, and the port that copies."""

import hashlib
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId, make_id
from everturn.turns.inbox import IdempotencyKey

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_NAMED = re.compile(rf"((?:conv|turn|art|sig)_{_UUID})(/[0-9a-f]{{64}})?", re.ASCII)
"""An id, and whether it is the beginning of an object's key."""
_ID = re.compile(rf"(?:turn|art|sig)_{_UUID}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Fork:
    """A conversation that was copied up to the end of `turn_id`, an ended turn of `source_id`."""

    conversation_id: ConversationId
    source_id: ConversationId
    turn_id: TurnId
    turns: int
    blocks: int


class Renaming:
    """Writes the ids of a fork in place of those of its source. Keys of objects stay: a fork shares them.

    Ids keep their length, and the time in them, so that they sort as before; ids of other conversations stay.
    """

    def __init__(self, source_id: ConversationId, fork_id: ConversationId, ids: Iterable[str]) -> None:
        self._source_id = source_id
        self._new = {old: derive_id(old, fork_id) for old in ids} | {source_id: fork_id}

    def rename(self, text: str) -> str:
        """A text with every id that has a new one written anew."""
        return _NAMED.sub(self._replace, text)

    def __getitem__(self, old: str) -> str:
        return self._new[old]

    def get(self, old: str | None) -> str | None:
        """The new id; None for one that was not copied."""
        return None if old is None else self._new.get(old)

    def _replace(self, match: re.Match[str]) -> str:
        if match[1] == self._source_id and match[2]:
            return match[0]
        return self._new.get(match[1], match[1]) + (match[2] or "")


def derive_id(old: str, fork_id: ConversationId) -> str:
    """The id in the fork of what has the id `old` in its source: the same for the same two, and of the same time."""
    prefix, _, text = old.partition("_")
    return make_id(prefix, uuid.UUID(text).int >> 80, hashlib.sha256(f"{fork_id}\x1f{old}".encode()).digest())


def find_ids(text: str) -> set[str]:
    """All ids of turns, artifacts and signals that a text names."""
    return set(_ID.findall(text))


# Copying a conversation up to the end of a turn.


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
