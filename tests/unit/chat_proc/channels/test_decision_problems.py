from dataclasses import replace

import pytest

from chat_proc.channels.actions import Action, ActionRefusal, Program, ToolCall
from chat_proc.channels.decision_problems import DecisionLimits, ReplyFacts, find_problems
from everturn.models.port import FinishReason

CALL = Action("call_tool", tool_call=ToolCall("react.read", {}))
RUN = Action("call_tool", tool_call=ToolCall("run_code", {}))
FINAL = Action("complete", final_answer="x")
GOOD = ReplyFacts(
    raw="x",
    outside="\n",
    any_channel=True,
    readings=[CALL],
    programs=[],
    summary=None,
)


def kinds(facts: ReplyFacts, limits: DecisionLimits | None = None) -> list[tuple[str, bool]]:
    return [(problem.kind, problem.fatal) for problem in find_problems(facts, limits or DecisionLimits())]


@pytest.mark.parametrize(
    "facts",
    [
        GOOD,
        replace(GOOD, readings=[RUN], programs=[Program("p\n", 0)]),
        replace(GOOD, readings=[FINAL], summary="s"),
    ],
)
def test_a_good_reply_has_no_problem(facts: ReplyFacts) -> None:
    assert kinds(facts) == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (replace(GOOD, raw=" ", any_channel=False, readings=[]), [("empty_reply", True)]),
        (replace(GOOD, any_channel=False, readings=[]), [("no_channel", True)]),
        (replace(GOOD, readings=[]), [("no_action", True)]),
        (replace(GOOD, readings=[CALL, CALL]), [("two_actions", True)]),
        (replace(GOOD, outside="Sure!"), [("text_outside_channels", False)]),
        (replace(GOOD, reply_capped=True), [("reply_too_long", True)]),
        (replace(GOOD, summary="s"), [("summary_without_final", False)]),
        (replace(GOOD, outside_capped=True), [("reply_too_long", True)]),
        (replace(GOOD, programs=[Program("p", 0)]), [("code_without_call", True)]),
        (replace(GOOD, readings=[RUN]), [("call_without_code", True)]),
        (replace(GOOD, readings=[RUN], programs=[Program("p", 0), Program("q", 0)]), [("code_without_call", True)]),
        (replace(GOOD, readings=[RUN], programs=[Program("p", 0, complete=False)]), [("unclosed_code", True)]),
    ],
)
def test_each_mistake_is_named(facts: ReplyFacts, expected: list[tuple[str, bool]]) -> None:
    assert kinds(facts) == expected


def test_a_refused_action_is_the_only_report_about_its_program() -> None:
    facts = replace(GOOD, readings=[ActionRefusal("not_json", "Write it again.")], programs=[Program("p", None)])

    problems = find_problems(facts, DecisionLimits())

    assert [(problem.kind, problem.sentence, problem.action_instance) for problem in problems] == [
        ("not_json", "Write it again.", 0)
    ]


@pytest.mark.parametrize(("finish", "kind"), [("length", "cut_by_length"), ("refusal", "refused")])
def test_how_the_provider_ended_the_reply_explains_what_is_missing(finish: FinishReason, kind: str) -> None:
    assert kinds(replace(GOOD, readings=[], finish=finish)) == [(kind, True), ("no_action", True)]
    assert kinds(replace(GOOD, finish=finish)) == []


@pytest.mark.parametrize("count", [0, 2])
def test_the_older_version_takes_exactly_one_thinking_channel(count: int) -> None:
    facts = replace(GOOD, thinking_channels=count)

    assert kinds(facts, DecisionLimits(one_thinking=True)) == [("thinking_channels", True)]
    assert kinds(facts) == []


def test_an_answer_beside_a_call_is_dropped_and_the_call_kept() -> None:
    assert kinds(replace(GOOD, readings=[replace(CALL, dropped_answer=True)])) == [("answer_with_call", False)]


def test_after_a_refused_first_action_the_others_are_not_reported() -> None:
    facts = replace(GOOD, readings=[ActionRefusal("not_json", "Write it again."), CALL])

    assert kinds(facts) == [("not_json", True)]
