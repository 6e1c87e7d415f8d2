"""What is left of an erased conversation is found wherever it is."""

from collections.abc import Mapping

import pytest

from everturn.core.ids import ConversationId
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.stream import EncodedEvent, Entry
from everturn.files.model import object_key
from everturn.lifecycle.erasure import find_remains
from everturn_testing.core import SequentialIds
from everturn_testing.events.events import MemoryEvents
from everturn_testing.files.objects import MemoryObjects

GONE = SequentialIds().conversation()


class Rows:
    def __init__(self, counts: Mapping[str, int], named: frozenset[str] = frozenset()) -> None:
        self.counts = counts
        self.named = named

    async def count_rows(self, conversation_id: ConversationId) -> Mapping[str, int]:
        assert conversation_id == GONE
        return self.counts

    async def load_named_objects(self, conversation_id: ConversationId) -> frozenset[str]:
        return self.named


async def test_nothing_is_left_of_what_is_gone() -> None:
    remains = await find_remains(Rows({"turn": 0}), MemoryEvents(), MemoryObjects(), GONE)

    assert remains.is_clean


@pytest.mark.parametrize("where", ["rows", "events", "objects"])
async def test_remainders_are_found_in_every_store(where: str) -> None:
    events, objects, counts = MemoryEvents(), MemoryObjects(), {"turn": 0, "block": int(where == "rows")}
    if where == "events":
        entry = Entry(ORIGIN, (EncodedEvent(EventCursor(1, 1), "chat.delta", b"{}"),))
        await events.publish(GONE, entry, after=None)
    if where == "objects":
        objects.stored[object_key(GONE, "a" * 64)] = b"a"

    remains = await find_remains(Rows(counts), events, objects, GONE)

    assert not remains.is_clean
    assert (bool(remains.rows), remains.events, bool(remains.objects)) == tuple(
        where == each for each in ("rows", "events", "objects")
    )


async def test_an_object_that_a_fork_names_is_no_remainder() -> None:
    objects, key = MemoryObjects(), object_key(GONE, "a" * 64)
    objects.stored[key] = b"a"

    remains = await find_remains(Rows({}, frozenset({key})), MemoryEvents(), objects, GONE)

    assert (remains.is_clean, remains.shared) == (True, (key,))
