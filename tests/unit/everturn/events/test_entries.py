"""An entry reads back as it was built, whatever its events hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.events.cursor import EventCursor
from everturn.events.redis import build_fields, read_entry, read_id, stream_key
from everturn.events.stream import EncodedEvent, Entry
from everturn_testing.core import SequentialIds

cursors = st.builds(EventCursor, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
contents = st.lists(st.tuples(st.sampled_from(["chat.delta", "conv.status"]), st.binary(max_size=50)), min_size=1)


@given(prev=cursors, fence=st.integers(0, 2**63 - 1), contents=contents)
def test_an_entry_reads_back_as_it_was_built(prev: EventCursor, fence: int, contents: list[tuple[str, bytes]]) -> None:
    events = tuple(EncodedEvent(EventCursor(fence, n), kind, payload) for n, (kind, payload) in enumerate(contents))
    entry = Entry(prev, events)

    flat = build_fields(entry)

    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    assert read_entry(events[-1].id, fields) == entry


def test_a_streams_key_carries_the_conversation_as_hash_tag() -> None:
    conversation_id = SequentialIds().conversation()

    assert stream_key(conversation_id) == f"events:{{{conversation_id}}}"


def test_an_id_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not an event id"):
        read_id(b"1-x")
