"""Forks: the ids of copied rows, replacing the old ids in texts, and the port that copies."""

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
    """Replaces the ids of a source by those of its fork. Object keys don't change: a fork shares the objects.

    Ids keep their length and their time, so that they sort as before; ids of other conversations don't change.
    """

    def __init__(self, source_id: ConversationId, fork_id: ConversationId, ids: Iterable[str]) -> None:
        self._source_id = source_id
        self._new = {old: derive_id(old, fork_id) for old in ids} | {source_id: fork_id}

    def rename(self, text: str) -> str:
        """The text with every id that has a new one replaced."""
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
    """The fork's id for what has the id `old` in its source: deterministic, and with the same time."""
    prefix, _, text = old.partition("_")
    return make_id(prefix, uuid.UUID(text).int >> 80, hashlib.sha256(f"{fork_id}\x1f{old}".encode()).digest())


def find_ids(text: str) -> set[str]:
    """All ids of turns, artifacts and signals that a text names."""
    return set(_ID.findall(text))


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """`fork_id` is a fresh id; the default of `turn_id` is the last ended turn, that of `title` the source's title."""

    fork_id: ConversationId
    turn_id: TurnId | None = None
    title: str | None = None


class Forks(Protocol):
    """Each fork is one transaction."""

    async def fork(
        self, principal: Principal, source_id: ConversationId, wish: ForkRequest, key: IdempotencyKey | None
    ) -> Fork:
        """Copy blocks, ended turns, their signals, artifact rows and the source pool; objects are shared.

        Raises NotFound for an unknown conversation or turn, Conflict when the turn has not ended or none has,
        KeyReused, and KeyBusy when a request with the same key did not commit in 2 s.
        """
        ...
