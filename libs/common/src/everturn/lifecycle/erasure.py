"""The steps after the erasure of a conversation: deleting its objects, except those that forks share; retention; and
the check that nothing remains."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.events.cursor import ORIGIN
from everturn.events.stream import EventReader
from everturn.files.objects import Objects
from everturn.files.ports import Artifacts


async def delete_erased_objects(
    artifacts: Artifacts,
    objects: Objects,
    principal: Principal,
    conversation_id: ConversationId,
    object_keys: Sequence[str] = (),
) -> int:
    """Delete all objects of an erased conversation that no row names, also those of rejected commits.

    `object_keys` are those its rows named: it may have had the last reference to another conversation's object. The
    check runs after the erasure is committed, so that of two concurrent erasures the later one deletes. Returns a
    count.
    """
    kept = await artifacts.load_named_keys(principal, conversation_id)
    deleted = await objects.delete_conversation(conversation_id, keep=kept)
    foreign = [key for key in object_keys if not key.startswith(f"{conversation_id}/")]
    if foreign:
        deleted += await objects.delete(await artifacts.load_unreferenced(principal, foreign))
    return deleted


class RemainingRows(Protocol):
    """Queries across tenants; returns counts and keys only."""

    async def count_rows(self, conversation_id: ConversationId) -> Mapping[str, int]:
        """Rows by table, of every table with a conversation column, also those without any."""
        ...

    async def load_named_objects(self, conversation_id: ConversationId) -> frozenset[str]:
        """The keys of its objects that rows of other conversations name."""
        ...


@dataclass(frozen=True, slots=True)
class Remains:
    """Rows by table (non-zero only), whether there are events, objects that no row names, and objects that forks
    share."""

    rows: Mapping[str, int]
    events: bool
    objects: tuple[str, ...]
    shared: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        return not (self.rows or self.events or self.objects)


async def find_remains(
    rows: RemainingRows, events: EventReader, objects: Objects, conversation_id: ConversationId
) -> Remains:
    """Search every table, the event stream, and the object store by the prefix of its keys."""
    counted = await rows.count_rows(conversation_id)
    named = await rows.load_named_objects(conversation_id)
    remaining = await events.load_after(conversation_id, ORIGIN, max_entries=1)
    keys: list[str] = []
    page = await objects.load_page(f"{conversation_id}/")
    keys += [found.key for found in page.objects]
    while page.next_cursor is not None:
        page = await objects.load_page(f"{conversation_id}/", cursor=page.next_cursor)
        keys += [found.key for found in page.objects]
    return Remains(
        rows={table: count for table, count in counted.items() if count},
        events=bool(remaining),
        objects=tuple(key for key in keys if key not in named),
        shared=tuple(key for key in keys if key in named),
    )


@dataclass(frozen=True, slots=True)
class Expired:
    """A conversation whose rows are deleted; the caller removes its events and objects, as its owner."""

    conversation_id: ConversationId
    owner: Principal
    object_keys: tuple[str, ...]
    rows: int


class Retention(Protocol):
    """Several workers can call it concurrently: no conversation is given to two.

    Activity means turns, and that its person renamed, archived or rated it. Reading it, or a rating by a machine,
    doesn't count.
    """

    async def load_due(
        self, *, days: int, limit: int, skip: Collection[ConversationId] = ()
    ) -> tuple[ConversationId, ...]:
        """At most `limit` conversations without an open turn and without activity for that many days, the oldest
        first."""
        ...

    async def try_erase(self, conversation_id: ConversationId, *, days: int) -> Expired | None:
        """Erase the rows of one that is still due, however many; None when it isn't, or another worker erases it.

        It can take minutes. Raises Unavailable.
        """
        ...

    async def remove_expired_rows(self, *, days: int, limit: int) -> Mapping[str, int]:
        """Remove expired idempotency rows and what else has expired, such as accounts of people at MCP servers that
        were not used for long; unless `days` is 0, also older rows of the usage and effect ledgers. Counts by table."""
        ...
