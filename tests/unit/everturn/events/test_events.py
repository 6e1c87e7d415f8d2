"""Events on the wire."""

import json
from typing import get_args

import pytest
from pydantic import ValidationError

from everturn.conversations.model import ConversationView
from everturn.core.errors import problem
from everturn.events import model as events
from everturn.events.model import EVENT_TYPES, AnyEvent, Envelope, encode_envelope, event_name, parse_envelope
from everturn.events.views import CitationView, FileView, StateView, TurnView
from everturn.timeline.plans import PlanSnapshot
from everturn.timeline.turns import TurnUsage

FILE = FileView(
    artifact_id="art_1",
    ref="fi:1",
    rn="ef:1",
    filename="a",
    mime="b",
    size=1,
    visibility="external",
    url="/",
    verdict="v",
)
FAILURE = problem("model", "The model failed.", 502)
TURN = TurnView(turn_id="turn_1", ordinal=1, status="failed", text="Hi", error=FAILURE, files=(FILE,))
CONVERSATION = ConversationView(conversation_id="conv_1", title="", state="idle", created_at="", last_activity_at="")
PLAN = PlanSnapshot.model_validate(
    {
        "plan_id": "plan_1",
        "steps": [{"n": 1, "label": "One"}],
        "status": "open",
        "current": True,
        "origin_turn_id": "turn_1",
        "last_turn_id": "turn_1",
        "snapshot_ref": "ar:1",
    }
)


def envelope_of(data: AnyEvent) -> Envelope:
    return Envelope(id="1-2", type=data.type, ts="2026-01-02T03:04:05.000Z", conversation_id="conv_1", data=data)


EVENTS: tuple[AnyEvent, ...] = (
    events.Ready(),
    events.ConvStatus(state="queued", turn_id="turn_1", position=0),
    events.ConvTitle(title="Ünï"),
    events.ChatStart(turn_id="turn_1", ordinal=1, text="Hi", attachments=(FILE,)),
    events.ChatStep(step="s", status="error", title="t", params={"a": [None, {"b": None}], "c": 1.5}),
    events.ChatDelta(channel="answer", instance=0, index=3, text="a\n\nb", marker="answer"),
    events.ChatPlan(plan=PLAN),
    events.ChatFiles(files=(FILE,)),
    events.ChatCitations(sources=(CitationView(sid=1, title="", url="https://a.test", source_type="web"),)),
    events.ChatFollowups(items=("More?",)),
    events.ChatCompaction(status="started", reason="soft", before_tokens=60_000),
    events.ChatPhase(phase="model_retrying", retry_in_ms=900, attempt=2, max_attempts=8, reason="rate_limited"),
    events.ChatTool(call_id="call_1-1", tool_id="a.b", kind="data", data={"done": 3}),
    events.ChatSignal(signal_id="sig_1", kind="steer", state="accepted", text=""),
    events.ChatApproval(
        approval_id="appr_1", call_id="call_1", tool_id="a.b", params={"n": 1}, state="pending", expires_at="later"
    ),
    events.ChatRewind(turn=TURN),
    events.ChatComplete(outcome="cut", cut_reason="length", rounds=1, usage=TurnUsage(cost_known=False), elapsed_ms=1),
    events.ChatError(problem=FAILURE, rounds=1, usage=TurnUsage(cost_usd=0.1), elapsed_ms=1),
    events.StreamSnapshot(state=StateView(conversation=CONVERSATION, turns=(TURN,), cursor="1-1")),
    events.StreamGap(after="1-1"),
    events.ServerShutdown(retry_ms=10),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_every_event_reads_back_as_it_was_sent(event: AnyEvent) -> None:
    read = parse_envelope(encode_envelope(envelope_of(event)))

    assert read == envelope_of(event)


def test_no_event_is_left_out_above() -> None:
    assert tuple(event.type for event in EVENTS) == EVENT_TYPES


def test_an_encoded_envelope_is_one_line_and_names_its_type_once() -> None:
    event = events.ChatStep(step="s", status="started", title="two\nlines\u2028", params={"a": None})

    encoded = encode_envelope(envelope_of(event))

    assert b"\n" not in encoded
    assert json.loads(encoded)["data"] == {
        "step": "s",
        "status": "started",
        "title": "two\nlines\u2028",
        "params": {"a": None},
    }


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"[]",
        b"{}",
        b'{"type":"ready","ts":"","conversation_id":"c","data":[]}',
        b'{"type":"x","ts":"","conversation_id":"c","data":{}}',
    ],
)
def test_an_invalid_envelope_is_refused(encoded: bytes) -> None:
    with pytest.raises(ValidationError):
        parse_envelope(encoded)


def test_names_of_events_have_no_dots() -> None:
    assert event_name("chat.delta") == "chat_delta"
    assert len(set(map(event_name, EVENT_TYPES))) == len(get_args(AnyEvent))
