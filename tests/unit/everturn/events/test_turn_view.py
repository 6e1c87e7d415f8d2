"""A turn as a client sees it, from rows and blocks."""

from dataclasses import replace
from datetime import timedelta

import pytest

from everturn.core.errors import problem
from everturn.core.refs import log_ref
from everturn.events.turn_view import build_turn_view, try_build_step_detail
from everturn.events.views import TurnView
from everturn.timeline.blocks import AttemptBody, CompletionBody, NotesBody, NoticeBody, ThinkingBody, ToolResultBody
from everturn.timeline.turns import Outcome, SignalKind, SignalState, TurnStatus, TurnUsage
from everturn_testing.events.scenarios import BEGINNING, PROJECT, TENANT, Scenario, make_artifact


def view_of(scenario: Scenario) -> TurnView:
    return build_turn_view(scenario.records[-1], tenant=TENANT, project=PROJECT)


def test_texts_stand_by_round_then_thinking_notes_writing_and_answer() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.start_round()
    scenario.add(AttemptBody(text="An answer", reason="deferred"))
    scenario.add(NotesBody(text="first"))
    scenario.add(NotesBody(text="second"))
    scenario.add_call("exec_tools.run", {})
    scenario.add_call("react.write", {"path": "a.html", "channel": "canvas", "content": "<b>"})
    scenario.add(ThinkingBody(text="Hm"))
    scenario.add(ThinkingBody(text="", instance=1))
    scenario.commit()

    view = view_of(scenario)

    assert [(text.channel, text.instance, text.marker, text.text) for text in view.texts] == [
        ("thinking", 0, "thinking", "Hm"),
        ("notes", 0, "timeline_text", "first"),
        ("notes", 1, "timeline_text", "second"),
        ("canvas", 1, "canvas", "<b>"),
        ("answer", 0, "answer", "An answer"),
    ]
    assert view.answer is None


def test_the_answer_is_the_latest_completion_as_it_was_shown() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.start_round()
    scenario.add(CompletionBody(text="[[S:1]]", shown="[One](https://one.test)", followups=("a",), sources_used=(1,)))
    scenario.end_turn(Outcome.COMPLETED)

    view = view_of(scenario)

    assert (view.answer, view.followups, view.sources_used) == ("[One](https://one.test)", ("a",), (1,))
    assert (view.status, view.outcome, view.rounds, view.sealed_round, view.elapsed_ms) == (
        "completed",
        "completed",
        1,
        1,
        12,
    )
    assert view.usage == TurnUsage(input_tokens=10, output_tokens=1)


def test_equal_answers_one_after_the_other_are_shown_once_and_others_stay() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    for text in ("It is 42.", " it is\n42.", "It is 43."):
        scenario.start_round()
        scenario.add(CompletionBody(text=text))
    scenario.commit()

    view = view_of(scenario)

    assert [(text.round, text.text) for text in view.texts] == [(2, " it is\n42."), (3, "It is 43.")]
    assert view.answer == "It is 43."


def test_a_round_is_sealed_by_its_decision_and_not_by_its_start() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.start_round()
    scenario.add(NoticeBody(code="x", text="y"))
    scenario.commit()
    scenario.start_round()
    scenario.commit()

    view = view_of(scenario)

    assert (view.rounds, view.sealed_round) == (2, 1)


@pytest.mark.parametrize(
    ("notice", "error"),
    [
        (NoticeBody(code="unknown_tool", text="y", missing_tool="desk.find"), "The agent has no such tool."),
        (NoticeBody(code="bad_tool_call", text="Wrong.", refused_tool="desk.find"), "Wrong."),
    ],
)
def test_a_refused_call_is_a_failed_step(notice: NoticeBody, error: str) -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.start_round()
    scenario.add(notice)
    scenario.commit()

    [step] = view_of(scenario).steps

    assert (step.status, step.title, step.error, step.round) == ("error", "desk.find", error, 1)


def test_a_signal_row_takes_precedence_over_its_block() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.start_round()
    scenario.say(SignalKind.FOLLOWUP, "And this?")
    scenario.settle_signals(SignalState.APPLIED)
    scenario.say(SignalKind.CANCEL, "")
    record = scenario.records[-1]

    without_rows = build_turn_view(replace(record, signals=record.signals[1:]), tenant=TENANT, project=PROJECT)

    assert without_rows == view_of(scenario)
    assert [(signal.kind, signal.state) for signal in view_of(scenario).signals] == [
        ("followup", "applied"),
        ("cancel", "accepted"),
    ]


def test_files_are_those_for_the_person_once_in_order_of_appearance() -> None:
    scenario = Scenario()
    turn_id = scenario.start_turn("Hello", attachments=[make_artifact(scenario.start_turn("Before"), "mine.csv")])
    names = ["b.png", "a.png", "b.png"]
    artifacts = [make_artifact(turn_id, name) for name in names]
    artifacts.append(make_artifact(turn_id, "hidden", visibility="internal"))
    call_id = scenario.add_call("exec_tools.run", {})
    scenario.add(ToolResultBody(tool_id="t", status="ok", text="", artifacts=tuple(artifacts)), call_id=call_id)
    scenario.commit()

    view = view_of(scenario)

    assert [file.filename for file in view.files] == ["b.png", "a.png"]
    assert [file.filename for file in view.attachments] == ["mine.csv"]


def test_a_turn_without_an_exit_block_is_built_from_its_row() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    failure = problem("lost", "Nobody could finish this.", 500)
    turn = replace(
        scenario.records[-1].turn, status=TurnStatus.FAILED, error=failure, ended_at=BEGINNING + timedelta(seconds=2)
    )
    record = replace(scenario.records[-1], turn=turn)

    view = build_turn_view(record, tenant=TENANT, project=PROJECT)

    assert (view.status, view.error, view.outcome, view.elapsed_ms) == ("failed", failure, None, 2000)


def test_the_latest_snapshot_of_each_plan_is_shown() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    for name, label in [("p1", "one"), ("p2", "two"), ("p1", "better")]:
        scenario.change_plan(name, [label])
    scenario.commit()

    view = view_of(scenario)

    assert [(plan.plan_id, plan.steps[0].label) for plan in view.plans] == [("p1", "better"), ("p2", "two")]


def test_the_detail_of_a_step_has_what_the_view_of_the_turn_cuts() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.start_round()
    long = "x" * 9_000
    first = scenario.add_call("exec_tools.run", {"content": long}, code=long)
    other = scenario.add_call("exec_tools.run", {}, code="print(2)")
    turn_id = scenario.records[-1].turn.id
    log = make_artifact(turn_id, "log.txt").model_copy(update={"ref": log_ref(turn_id, "call_1.txt")})
    receipt = {"payload": {"run_id": "exec_1"}, "key_id": "k", "signature": "s"}
    ran = {"run": {"ok": True, "receipt": receipt}}
    body = ToolResultBody(tool_id="exec_tools.run", status="ok", text=long, artifacts=(log,), data=ran)
    scenario.add(body, call_id=first)
    old = {"run": {"receipt": {"image": "not signed"}}}
    scenario.add(ToolResultBody(tool_id="exec_tools.run", status="ok", text="", data=old), call_id=other)
    scenario.commit()

    (shown, second) = view_of(scenario).steps
    detail = try_build_step_detail(scenario.records[-1], str(first), tenant=TENANT, project=PROJECT)

    assert detail is not None
    assert (detail.code, detail.result, detail.params) == (long, long, {"content": long})
    assert detail.log is not None
    assert detail.log.ref == log.ref
    assert (len(shown.code or ""), shown.code_chars, detail.status) == (4_000, 9_000, "completed")
    assert detail.receipt == receipt
    unsigned = try_build_step_detail(scenario.records[-1], str(other), tenant=TENANT, project=PROJECT)
    assert unsigned is not None
    assert unsigned.receipt is None
    assert (second.step, second.code, second.code_chars) == (other, "print(2)", 8)
    assert try_build_step_detail(scenario.records[-1], "call_absent", tenant=TENANT, project=PROJECT) is None
