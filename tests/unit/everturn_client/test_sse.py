"""Server-sent events, however they are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn_client.errors import TooMuch
from everturn_client.sse import SseEvent, SseParser

line_ends = st.sampled_from(["\n", "\r\n", "\r"])
values = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)
lines = st.one_of(
    st.tuples(st.sampled_from(["data", "event", "id", "retry", "other", ""]), values).map(":".join),
    st.tuples(st.sampled_from(["data: ", "data", "id: "]), values).map("".join),
    st.just(""),
    st.just(": heartbeat"),
)
streams = st.lists(st.tuples(lines, line_ends), max_size=12).map(lambda parts: "".join(a + b for a, b in parts))


def parse(chunks: list[bytes]) -> tuple[list[SseEvent], int | None]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)], parser.retry_ms


@given(stream=streams, data=st.data())
def test_the_same_events_come_out_for_every_cut(stream: str, data: st.DataObject) -> None:
    whole = stream.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    assert parse(chunks) == parse([whole])
    assert parse([whole[n : n + 1] for n in range(len(whole))]) == parse([whole])


@given(data=st.lists(values, min_size=1), name=values, end=line_ends)
def test_what_was_written_is_read(data: list[str], name: str, end: str) -> None:
    name = name.strip()
    block = [f"event: {name}", *(f"data: {line}" for line in data), "id: 1-2", "", ""]

    events, _ = parse([end.join(block).encode()])

    assert events == [SseEvent(name or "message", "\n".join(data), "1-2")]


def test_a_stream_may_begin_with_a_byte_order_mark_in_pieces() -> None:
    events, _ = parse([b"\xef", b"\xbb\xbfdata", b": x\n\n"])

    assert events == [SseEvent("message", "x", "")]


def test_ids_last_names_do_not_and_events_without_data_are_none() -> None:
    events, retry_ms = parse(
        [b"event: a\nid: 7\ndata\n\nevent: b\n\nid: 8\0\nretry: 50\nretry: x\ndata: y\n\ndata: cut"]
    )

    assert events == [SseEvent("a", "", "7"), SseEvent("message", "y", "7")]
    assert retry_ms == 50


def test_broken_utf_8_does_not_stop_the_stream() -> None:
    events, _ = parse([b"data: \xff\n\ndata: y\n\n"])

    assert [event.data for event in events] == ["\ufffd", "y"]


@pytest.mark.parametrize("chunk", [b"x" * 40, b"data: 1234567\n"])
def test_an_event_that_does_not_end_is_refused(chunk: bytes) -> None:
    parser = SseParser(max_event_bytes=100)

    with pytest.raises(TooMuch):
        for _ in range(20):
            parser.feed(chunk)


def test_the_size_counts_anew_for_each_event() -> None:
    parser = SseParser(max_event_bytes=20)

    events = [event for _ in range(50) for event in parser.feed(b"data: 1234567\n\n")]

    assert len(events) == 50
