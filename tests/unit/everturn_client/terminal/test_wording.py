"""What things are called in a terminal."""

from typing import Any

import pytest

from everturn.conversations.model import ConversationView
from everturn.core.errors import problem
from everturn.events.model import ChatCompaction, ChatPhase
from everturn.events.views import (
    ApprovalView,
    CitationView,
    EventView,
    SignalView,
    StepView,
    TurnView,
)
from everturn.timeline.plans import PlanSnapshot
from everturn.timeline.turns import TurnUsage
from everturn_client.terminal import wording


def test_a_step_is_one_line_in_each_state() -> None:
    started = StepView(step="s", status="started", title="draw\nchart", round=1)
    done = started.model_copy(update={"status": "completed", "duration_ms": 1234})
    failed = started.model_copy(update={"status": "error", "duration_ms": 5, "result_preview": "No such\nfile"})

    assert wording.render_step(started) == "▸ draw chart …"
    assert wording.render_step(done) == "✓ draw chart (1.2 s)"
    assert wording.render_step(failed) == "✗ draw chart (5 ms): No such file"
    assert wording.render_step(done.model_copy(update={"step_id": "look"})) == "✓ look: draw chart (1.2 s)"


def test_an_event_is_called_by_its_own_kind() -> None:
    signal = SignalView(
        signal_id="s", kind="event", state="applied", text="Sent.", round=2, event=EventView(kind="form", reactive=True)
    )

    assert wording.render_signal(signal) == "· form event · Delivered: Sent."


def test_an_approval_shows_the_call_and_the_answer_commands() -> None:
    asked = ApprovalView(
        approval_id="appr_1", call_id="call_1", tool_id="mail.send", params={"text": "a\nb"}, cut=True, state="pending",
        round=1, expires_at="2026-03-02T12:00:00.000Z",
    )  # fmt: skip
    denied = asked.model_copy(update={"state": "denied", "reason": "Not\ntoday."})

    lines = [
        '? Allow mail.send? {"text": "a\\nb"} (cut)',
        "  Expires at 2026-03-02 12:00 UTC.",
        "  Allow it: everturn answer --conversation conv_1 appr_1 approve",
        "  Deny it:  everturn answer --conversation conv_1 appr_1 deny",
    ]
    assert wording.render_approval(asked, "everturn answer --conversation conv_1").splitlines() == lines
    assert wording.render_approval(asked).splitlines() == lines[:2]
    explained = asked.model_copy(update={"explanation": "It is new:\nhttps://a.example/"})
    assert wording.render_approval(explained).splitlines()[1:3] == ["  It is new:", "  https://a.example/"]
    detailed = asked.model_copy(update={"details": "1 file:\n  added a\u202eb.py"})
    assert wording.render_approval(detailed).splitlines()[1:3] == ["  1 file:", "    added a\\u202eb.py"]
    linked = asked.model_copy(update={"connect_url": "https://login.example/?a=b&c=\u202ed"})
    assert wording.render_approval(linked, "everturn answer").splitlines() == [
        '? Connect an account for mail.send? {"text": "a\\nb"} (cut)',
        "  Open: https://login.example/?a=b&c=\\u202ed",
        "  Expires at 2026-03-02 12:00 UTC.",
        "  Deny it:  everturn answer appr_1 deny",
    ]
    assert wording.render_approval(denied) == '· mail.send {"text": "a\\nb"} denied: Not today.'
    assert (
        wording.render_approval(asked.model_copy(update={"state": "expired"}))
        == '· mail.send {"text": "a\\nb"} expired'
    )


def test_a_question_shows_every_character_that_nobody_sees_and_every_blank():
    asked = ApprovalView(
        approval_id="appr_1", call_id="call_1", tool_id="mail.send", state="pending", round=1,
        expires_at="2026-03-02T12:00:00.000Z", explanation="To\u200b: ann\u2028Cc: ben\nNow",
        params={"to": "a\u200bnn\u2028\u00adb\U000e0041", "text": "rm  x \u200d\u3164 \u3042\U0001f600"},
    )  # fmt: skip

    assert wording.render_approval(asked).splitlines()[:3] == [
        '? Allow mail.send? {"to": "a\\u200bnn\\u2028\\u00adb\\U000e0041", '
        '"text": "rm  x \\u200d\\u3164 \u3042\U0001f600"}',
        "  To\\u200b: ann\\u2028Cc: ben",
        "  Now",
    ]


def test_a_plan_shows_its_marks() -> None:
    steps = [{"n": n, "label": s, "status": s} for n, s in enumerate(["done", "in_progress", "pending", "failed"], 1)]
    plan = PlanSnapshot.model_validate(
        {
            "plan_id": "p",
            "steps": steps,
            "status": "closed",
            "current": True,
            "origin_turn_id": "t",
            "last_turn_id": "t",
            "snapshot_ref": "r",
        }
    )

    assert wording.render_plan(plan).splitlines() == [
        "Plan (closed):",
        "  ✓ 1. done",
        "  … 2. in_progress",
        "  □ 3. pending",
        "  ✗ 4. failed",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"error": problem("m", "The model failed.", 502, "Twice.")}, "The answer failed: The model failed. Twice."),
        ({"outcome": "cancelled"}, "This answer was cancelled."),
        ({"outcome": "completed"}, ""),
        ({"outcome": "stopped"}, "You stopped this answer."),
        (
            {"outcome": "capped"},
            'The agent reached a limit, so this answer may be incomplete. Send "continue" for the rest.',
        ),
        ({"outcome": "unknown"}, "This answer ended early."),
        (
            {"outcome": "cut", "cut_reason": "length"},
            'This answer was cut off: it reached the model\'s length limit. Send "continue" for the rest.',
        ),
        (
            {"outcome": "cut", "cut_reason": "refusal"},
            "This answer was cut off: the model declined to continue.",
        ),
        (
            {"outcome": "cut", "cut_reason": "of a newer server"},
            'This answer was cut off. Send "continue" for the rest.',
        ),
    ],
)
def test_the_outcome_of_a_turn_is_printed(changes: dict[str, object], expected: str) -> None:
    turn = TurnView(turn_id="t", ordinal=1, status="completed", text="").model_copy(update=changes)

    assert wording.render_end(turn) == expected


@pytest.mark.parametrize(
    ("ahead", "more", "expected"),
    [
        (0, False, "· waiting, next in line"),
        (1, False, "· waiting, one message is ahead"),
        (7, False, "· waiting, 7 messages are ahead"),
        (100, True, "· waiting, more than 100 messages are ahead"),
    ],
)
def test_a_queue_position_is_printed_as_messages_ahead(ahead: int, more: bool, expected: str) -> None:
    assert wording.render_position(ahead, more=more) == expected


def test_a_skipped_compaction_is_printed() -> None:
    compaction = ChatCompaction(status="skipped", reason="nothing_to_save", before_tokens=70_000)

    assert wording.render_compaction(compaction) == "· earlier messages were not summarized"


def test_a_source_is_one_line_whatever_its_title_holds() -> None:
    cited = CitationView(sid=3, title="A\nreport", url="https://a.example/r", source_type="web")

    assert wording.render_sources([cited]) == "Sources:\n  [3] A report  https://a.example/r"


def test_counts_name_rounds_time_tokens_and_money() -> None:
    usage = TurnUsage(input_tokens=1000, output_tokens=500, cost_usd=0.01)
    turn = TurnView(turn_id="t", ordinal=1, status="completed", text="", rounds=1, elapsed_ms=61_000, usage=usage)

    assert wording.render_counts(turn) == "1 round · 61.0 s · 1,500 tokens · $0.0100"


def test_a_signal_and_a_conversation_are_one_line() -> None:
    signal = SignalView(signal_id="s", kind="steer", state="applied", text="Only\nthe north", round=2)
    conversation = ConversationView(
        conversation_id="conv_1", title="", state="idle", created_at="", last_activity_at="2026-01-02T03:04:05.000Z"
    )

    assert wording.render_signal(signal) == "· Redirect · Delivered: Only the north"
    assert wording.render_conversation(conversation) == "conv_1  2026-01-02 03:04  idle     (no title)"


@pytest.mark.parametrize(
    ("kind", "state", "text", "expected"),
    [
        ("followup", "accepted", "And the south", "· Sent: And the south"),
        ("followup", "retracted", "And the south", "· Retracted: And the south"),
        ("steer", "applied", "", ""),
        ("cancel", "accepted", "", ""),
        ("approve", "applied", "", ""),
        ("cancel", "rejected", "", "· cancel · Could not be delivered"),
    ],
)
def test_signals_have_the_same_labels_as_on_the_page(kind: Any, state: Any, text: str, expected: str) -> None:
    assert wording.render_signal(SignalView(signal_id="s", kind=kind, state=state, text=text)) == expected


def test_a_time_is_printed_to_the_minute() -> None:
    assert wording.render_time("2026-11-26T22:17:19.550Z") == "2026-11-26 22:17 UTC"
    assert wording.render_time("soon") == "soon"


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 KB"), (2_500_000, "2.5 MB"), (10**10, "10.0 GB")],
)
def test_sizes_are_readable(size: int, expected: str) -> None:
    assert wording.render_size(size) == expected


def test_a_long_line_is_cut() -> None:
    assert len(wording.one_line("word " * 500)) == 200


def test_choosing_tools_is_a_line_and_thinking_is_none() -> None:
    selecting = ChatPhase(phase="selecting_tools", total_tools=30)

    assert wording.render_phase(selecting) == "· choosing tools from 30"
    assert wording.render_phase(ChatPhase(phase="model_called")) == ""
    assert wording.render_phase(ChatPhase(phase="model_thought", thinking="Hm.")) == ""
