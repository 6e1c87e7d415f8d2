from chat_proc.stream.emitter import UncommittedEvent, UncommittedEvents
from everturn.events.cursor import EventCursor
from everturn.events.model import ChatDelta, ChatPhase, ConvTitle


def delta(text: str, index: int, *, channel: str = "answer", completed: bool = False) -> ChatDelta:
    return ChatDelta(channel=channel, instance=0, index=index, text=text, marker=channel, completed=completed)


def test_pieces_of_one_text_become_one_piece() -> None:
    said = UncommittedEvents()

    said.add(EventCursor(1, 1), delta("Hel", 0), 1)
    said.add(EventCursor(1, 2), delta("lo", 1, completed=True), 1)

    assert said.merged() == (UncommittedEvent(delta("Hello", 0, completed=True), 1),)


def test_texts_and_events_keep_the_order_in_which_they_began() -> None:
    said = UncommittedEvents()

    said.add(EventCursor(1, 3), delta("a", 0, channel="thinking"), 1)
    said.add(EventCursor(1, 4), ConvTitle(title="T"), None)
    said.add(EventCursor(1, 5), delta("x", 0), 1)
    said.add(EventCursor(1, 6), delta("b", 1, channel="thinking"), 1)

    assert [item.data for item in said.merged()] == [
        delta("ab", 0, channel="thinking"),
        ConvTitle(title="T"),
        delta("x", 0),
    ]


def test_the_same_channel_in_another_round_is_another_text() -> None:
    said = UncommittedEvents()

    said.add(EventCursor(1, 7), delta("a", 0), 1)
    said.add(EventCursor(1, 8), delta("b", 0), 2)

    assert [(item.round, item.data) for item in said.merged()] == [(1, delta("a", 0)), (2, delta("b", 0))]


def test_a_commit_covers_the_events_up_to_its_cursor() -> None:
    said = UncommittedEvents()
    for n, text in enumerate("abc"):
        said.add(EventCursor(1, n), delta(text, n), 1)

    said.forget(EventCursor(1, 1))
    assert said.merged() == (UncommittedEvent(delta("c", 2), 1),)

    said.forget(EventCursor(1, 2))
    assert said.merged() == ()


def test_of_the_events_about_the_conversation_the_newest_is_kept() -> None:
    said = UncommittedEvents()
    for n, title in enumerate(("old", "new")):
        said.add(EventCursor(1, n), ConvTitle(title=title), None)

    said.forget(EventCursor(1, 9))

    assert [item.data for item in said.merged()] == [ConvTitle(title="new")]


def test_of_phases_only_those_of_a_model_call_are_kept() -> None:
    said = UncommittedEvents()
    kept = [
        ChatPhase(phase="model_called"),
        ChatPhase(phase="model_fallback"),
        ChatPhase(phase="model_thought", thinking="a"),
    ]
    for n, phase in enumerate([*kept, ChatPhase(phase="model_waiting", waited_ms=5_000)]):
        said.add(EventCursor(1, n), phase, 1)

    assert [item.data for item in said.merged()] == kept
