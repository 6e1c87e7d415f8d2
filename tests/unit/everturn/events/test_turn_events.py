"""Events built from stored values."""

import pytest

from everturn.events import turn_view as turn_events
from everturn.events.model import ChatComplete, ChatError
from everturn.events.turn_view import build_turn_view
from everturn.events.views import SignalView, StepView
from everturn.timeline.blocks import CompletionBody
from everturn.timeline.turns import Outcome
from everturn_testing.events.scenarios import PROJECT, TENANT, Scenario, make_artifact


def test_an_open_turn_has_no_terminal_event() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")

    event = turn_events.try_build_terminal_event(build_turn_view(scenario.records[-1], tenant=TENANT, project=PROJECT))

    assert event is None


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_ended_turn_is_printed_with_its_answer(outcome: Outcome) -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.start_round()
    scenario.add(CompletionBody(text="Hi", followups=("More?",)))
    scenario.end_turn(outcome)

    event = turn_events.try_build_terminal_event(build_turn_view(scenario.records[-1], tenant=TENANT, project=PROJECT))

    assert isinstance(event, ChatComplete)
    assert (event.outcome, event.answer, event.followups, event.rounds) == (outcome.value, "Hi", ("More?",), 1)
    assert event.cut_reason == ("length" if outcome is Outcome.CUT else None)


def test_a_failed_turn_is_printed_with_its_problem() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.end_turn("failed")

    event = turn_events.try_build_terminal_event(build_turn_view(scenario.records[-1], tenant=TENANT, project=PROJECT))

    assert isinstance(event, ChatError)
    assert event.problem.title == "The model failed."


def test_a_start_contains_the_request() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello", attachments=[make_artifact(scenario.start_turn("Before"), "a.csv")])

    event = turn_events.build_start_event(scenario.records[-1].turn, tenant="t", project="p")

    assert (event.ordinal, event.text, event.attachments[0].url) == (2, "Hello", "/files/t/p/art_a.csv")


def test_steps_and_signals_lose_nothing_on_the_way() -> None:
    step = StepView(
        step="s",
        status="error",
        title="t",
        round=3,
        tool_id="i",
        call_id="c",
        params={},
        result_preview="p",
        duration_ms=1,
        error="e",
    )
    signal = SignalView(signal_id="s", kind="steer", state="promoted", text="x", round=1, promoted_to="turn_2")

    step_event = turn_events.build_step_event(step)
    signal_event = turn_events.build_signal_event(signal)

    assert StepView(round=3, **step_event.model_dump(exclude={"type", "ref"})) == step
    assert SignalView(**signal_event.model_dump(exclude={"type"})) == signal


def test_answer_events_have_citations_and_followups() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.start_round()
    scenario.answer("So it is.", (2, 1))

    answer_events = turn_events.build_answer_events(scenario.records[-1].blocks)

    assert [event.type for event in answer_events] == ["chat.citations", "chat.followups"]
    assert answer_events[0].type == "chat.citations" and [cited.sid for cited in answer_events[0].sources] == [1, 2]


def test_an_answer_without_sources_and_followups_has_no_extra_events() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.add(CompletionBody(text="Hello."))
    scenario.commit()

    assert turn_events.build_answer_events(scenario.records[-1].blocks) == []
