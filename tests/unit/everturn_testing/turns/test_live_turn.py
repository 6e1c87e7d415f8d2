"""What the recording turn keeps."""

from everturn.events.model import ChatStep, ChatTool
from everturn.turns.model import UsageEvent
from everturn_testing.turns.live_turn import RecordingTurn


def test_it_records_events() -> None:
    live = RecordingTurn()
    usage = UsageEvent("brave", "web_search", 0, 0, 0, 0, 0.005, False)

    live.emit(ChatStep(step="call_1", status="started", title="x", tool_id="a.b"))
    live.emit(ChatTool(call_id="call_1", tool_id="a.b", kind="progress", text="Half."))
    live.record_usage(usage)

    assert (live.steps, live.tool_events) == ([("a.b", "started")], [("progress", "Half.")])
    assert (live.recorded, live.lease_age_s(), live.lease.fence) == ([usage], 0.0, 1)
