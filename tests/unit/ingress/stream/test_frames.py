"""SSE frames: their bytes, and the filter of second terminal events."""

import json

from everturn.events.cursor import EventCursor
from everturn.events.model import ChatComplete, ChatDelta, ConvTitle, Envelope, Ready, ServerShutdown, encode_envelope
from everturn.events.stream import EncodedEvent, Entry
from everturn.timeline.turns import TurnUsage
from ingress.stream.frames import (
    HEARTBEAT,
    TerminalFilter,
    build_batch,
    build_frame,
    encode_frame,
    split_frames,
    try_terminal_turn,
)


def ended(n: int, turn_id: str = "turn_1") -> EncodedEvent:
    data = ChatComplete(outcome="completed", answer="a", rounds=1, usage=TurnUsage(), elapsed_ms=1)
    envelope = Envelope(id=f"1-{n}", type=data.type, ts="t", conversation_id="c", turn_id=turn_id, data=data)
    return EncodedEvent(EventCursor(1, n), data.type, encode_envelope(envelope))


def entry(*events: EncodedEvent) -> Entry:
    return Entry(EventCursor(1, events[0].id.n - 1), events)


def test_a_frame_has_id_event_and_one_data_line() -> None:
    assert encode_frame("chat.delta", b'{"a":1}', cursor="3-17") == b'event: chat_delta\ndata: {"a":1}\nid: 3-17\n\n'


def test_a_frame_of_this_server_has_no_id_and_may_say_when_to_come_back() -> None:
    frame = build_frame(ServerShutdown(retry_ms=700), conversation_id="c", ts="t", retry_ms=700)

    assert frame.startswith(b"retry: 700\nevent: server_shutdown\ndata: {")
    assert b"id:" not in build_frame(Ready(), conversation_id="c", ts="t")


def test_text_that_looks_like_a_frame_stays_inside_its_data_line() -> None:
    hostile = "\n\nid: 9-9\nevent: chat_complete\ndata: {}\n\n\r\r\u2028"
    data = ChatDelta(channel="answer", instance=0, index=0, text=hostile, marker="answer")
    frame = build_frame(data, conversation_id="c", ts="t", cursor="1-1")

    assert frame.count(b"\n\n") == 1
    assert b"\r" not in frame
    assert [line[:5] for line in frame.splitlines() if line] == [b"event", b"data:", b"id: 1"]


def test_a_batch_joins_its_frames_and_keeps_its_id_when_one_is_dropped() -> None:
    both = entry(ended(4), ended(5))

    batch = build_batch(both, frozenset({EventCursor(1, 5)}))

    assert batch.last == EventCursor(1, 5)
    assert [frame.id.n for frame in batch.frames] == [4]
    assert batch.joined == batch.frames[0].data


def test_a_second_end_of_a_turn_is_named_and_the_first_one_never() -> None:
    seen = TerminalFilter()

    assert seen.find_repeated_ends(entry(ended(4))) == frozenset()
    assert seen.find_repeated_ends(entry(ended(9))) == {EventCursor(1, 9)}
    assert seen.find_repeated_ends(entry(ended(4))) == frozenset()
    assert seen.find_repeated_ends(entry(ended(10, "turn_2"))) == frozenset()


def test_the_filter_forgets_the_oldest_turns() -> None:
    seen = TerminalFilter(max_turns=2)

    for n in range(1, 4):
        seen.find_repeated_ends(entry(ended(n, f"turn_{n}")))

    assert seen.find_repeated_ends(entry(ended(9, "turn_1"))) == frozenset()
    assert seen.find_repeated_ends(entry(ended(10, "turn_3"))) == {EventCursor(1, 10)}


def test_a_terminal_event_that_we_cannot_read_is_passed_on() -> None:
    assert try_terminal_turn(EncodedEvent(EventCursor(1, 1), "chat.complete", b'{"newer": true}')) is None
    assert try_terminal_turn(EncodedEvent(EventCursor(1, 1), "chat.delta", b"{}")) is None


def test_frames_can_be_taken_apart_again() -> None:
    hint = build_frame(ConvTitle(title="a\n\ndata: b"), conversation_id="c", ts="t")
    event = encode_frame("chat.delta", b'{"a":1}', cursor="1-2", retry_ms=5)

    sent = split_frames(HEARTBEAT + hint + event)

    assert [each.name for each in sent] == ["conv_title", "chat_delta"]
    assert json.loads(sent[0].payload)["data"]["title"] == "a\n\ndata: b"
    assert sent[1].payload == b'{"a":1}'


def test_a_frame_is_one_line_also_for_clients_that_know_more_line_ends() -> None:
    frame = encode_frame("chat.delta", '{"text":"a\x85b\u2028c\u2029d\\\\\u2028"}'.encode())

    data = frame.decode().splitlines()[1].removeprefix("data: ")
    assert json.loads(data) == {"text": "a\x85b\u2028c\u2029d\\\u2028"}


def test_a_time_that_cannot_be_read_is_none() -> None:
    for ts in (b"", b"T", b"2026-99-01T00:00:00Z"):
        event = EncodedEvent(EventCursor(1, 1), "chat.delta", b'{"ts":"' + ts + b'"}')

        assert build_batch(Entry(EventCursor(0, 0), (event,))).created_at is None
