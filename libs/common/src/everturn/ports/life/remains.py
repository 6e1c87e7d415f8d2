"""What is left of a conversation that was erased: nothing, or it says where."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from everturn.model.ids import ConversationId
from everturn.model.leases import ORIGIN
from everturn.ports.event_stream import EventReader
from everturn.ports.objects import Objects


class RemainingRows(Protocol):
    """Asks across tenants, and is told counts and keys only."""

    async def count_rows(self, conversation_id: ConversationId) -> Mapping[str, int]:
        """Rows by table, of every table that has conversations, also of those without any."""
        ...

    async def load_named_objects(self, conversation_id: ConversationId) -> frozenset[str]:
        """The keys of its objects that rows of other conversations name."""
        ...


@dataclass(frozen=True, slots=True)
class Remains:
    """Rows by table where there are any, whether events are there, objects that no row names, and those forks share."""

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
    """Look into every table, the event stream, and the object store by the prefix of its keys."""
    counted = await rows.count_rows(conversation_id)
    named = await rows.load_named_objects(conversation_id)
    told = await events.load_after(conversation_id, ORIGIN, max_entries=1)
    keys: list[str] = []
    page = await objects.load_page(f"{conversation_id}/")
    keys += [found.key for found in page.objects]
    while page.next_cursor is not None:
        page = await objects.load_page(f"{conversation_id}/", cursor=page.next_cursor)
        keys += [found.key for found in page.objects]
    return Remains(
        rows={table: count for table, count in counted.items() if count},
        events=bool(told),
        objects=tuple(key for key in keys if key not in named),
        shared=tuple(key for key in keys if key in named),
    )
