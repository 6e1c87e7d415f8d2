"""Events of a running tool stay within limits."""

import pytest
from pydantic import BaseModel

from chat_proc.catalog.tool import MAX_DATA_BYTES, MAX_EVENTS, MAX_TEXT_CHARS, ToolCall, ToolContext, ToolEvents
from everturn.core.errors import Conflict, Invalid
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn.events.model import ChatTool
from everturn_testing.files.stored_files import OWNER
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW
from everturn_testing.turns.live_turn import RecordingTurn


class NoParams(BaseModel):
    pass


@pytest.fixture
def live() -> RecordingTurn:
    return RecordingTurn()


@pytest.fixture
def events(live: RecordingTurn) -> ToolEvents:
    context = ToolContext(OWNER, ConversationId("conv_1"), TurnId("turn_1"), 1, (), NOW, MemorySourcePool(), live=live)
    return ToolEvents(ToolCall(CallId("call_1"), NoParams(), None, context), "demo.work")


def test_three_kinds_of_events_name_the_call_and_its_tool(events: ToolEvents, live: RecordingTurn) -> None:
    events.progress("Half.")
    events.message("Look.")
    events.data({"done": 3})

    assert live.events == [
        ChatTool(call_id="call_1", tool_id="demo.work", kind="progress", text="Half."),
        ChatTool(call_id="call_1", tool_id="demo.work", kind="message", text="Look."),
        ChatTool(call_id="call_1", tool_id="demo.work", kind="data", data={"done": 3}),
    ]


def test_a_long_text_is_cut_and_invalid_characters_are_replaced(events: ToolEvents, live: RecordingTurn) -> None:
    events.progress("x" * (MAX_TEXT_CHARS + 1))
    events.progress("\ud800")

    assert [len(text) for _, text in live.tool_events] == [MAX_TEXT_CHARS, 1]


@pytest.mark.parametrize("data", [{"a": "x" * MAX_DATA_BYTES}, {"a": object()}, {"a": float("nan")}])
def test_data_that_is_too_large_or_no_json_is_refused(events: ToolEvents, live: RecordingTurn, data: object) -> None:
    with pytest.raises(Invalid):
        events.data(data)  # pyright: ignore[reportArgumentType] that is what is tried

    assert live.events == []


def test_a_call_sends_a_bounded_number_of_events(events: ToolEvents, live: RecordingTurn) -> None:
    for _ in range(MAX_EVENTS):
        events.progress("x")

    with pytest.raises(Conflict):
        events.progress("x")
    assert len(live.events) == MAX_EVENTS


def test_no_event_is_sent_after_the_call(events: ToolEvents, live: RecordingTurn) -> None:
    events.close()

    with pytest.raises(Conflict):
        events.message("x")
    assert live.events == []
