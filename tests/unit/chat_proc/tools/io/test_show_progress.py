"""A program says what it is at."""

from chat_proc.tools.io import ShowProgressTool
from everturn_testing.timeline import TimelineBuilder
from everturn_testing.turns.live_turn import RecordingTurn


async def test_clients_are_notified_at_once(call_tool) -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello")

    await call_tool(ShowProgressTool(), timeline, {"text": "Half is read."}, live=(live := RecordingTurn()))

    assert live.tool_events == [("progress", "Half is read.")]
