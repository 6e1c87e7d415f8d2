import pytest
from turn_harness.replies import NONSENSE, answer, call, cut_answer
from turn_harness.tools import DemoTool

from chat_proc.agent.drafting import GiveAnswer, Repair, UseTool, Verdict, Work, check_decision
from chat_proc.catalog.tool import ToolRegistry
from chat_proc.channels.actions import Decision, FanoutRules
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.decision_stream import DecisionStream

CATALOG = ToolRegistry(
    [
        DemoTool(strategy="exploration"),
        DemoTool("demo.run", takes_code=True, strategy="exploitation"),
        DemoTool("demo.plan", strategy="neutral"),
    ]
)
CODE_TOOLS = frozenset({"demo.run"})
RULES = FanoutRules({spec.tool_id: spec.strategy for spec in CATALOG.specs}, CODE_TOOLS)


def read(reply: str, *, fanout: bool = False) -> Decision:
    stream = DecisionStream(limits=DecisionLimits(code_tools=CODE_TOOLS, fanout=RULES if fanout else None))
    stream.feed(reply)
    return stream.finish()[1]


def judge(reply: str, *, shown: str = "", fanout: bool = False) -> Verdict:
    return check_decision(read(reply, fanout=fanout), shown, CATALOG)


def only_item(verdict: Verdict) -> UseTool | GiveAnswer:
    assert isinstance(verdict, Work)
    (item,) = verdict.items
    return item


def test_a_valid_call_keeps_its_raw_and_parsed_arguments() -> None:
    use = only_item(judge(call("demo.echo", {"text": "x"}, notes="why")))

    assert isinstance(use, UseTool)
    assert use.raw_params == {"text": "x"}
    assert use.params.model_dump() == {"text": "x"}
    assert (use.code, use.notes) == (None, "why")


def test_a_program_goes_with_a_tool_that_takes_one() -> None:
    use = only_item(judge(call("demo.run", {}, code="print(1)")))

    assert isinstance(use, UseTool)
    assert use.code == "print(1)\n"


def test_an_answer_is_taken_with_all_that_belongs_to_it() -> None:
    verdict = judge(answer("Hello.", notes="n", followups=("Why?",), summary="greeted"), shown="Hello.")

    assert only_item(verdict) == GiveAnswer("Hello.", "Hello.", ("Why?",), (), "greeted", "n")


@pytest.mark.parametrize(
    ("reply", "code", "says"),
    [
        (NONSENSE, "not_json", "JSON"),
        ("", "empty_reply", ""),
        ("<invoke>x</invoke>", "no_channel", ""),
        ("<channel:thinking>Hm.</channel:thinking>", "no_action", "action"),
        (call("demo.none", {}), "bad_tool_call", "does not exist"),
        (call("demo.echo", {"other": 1}), "bad_tool_call", "are invalid"),
        (call("demo.run", {}), "call_without_code", "code channel"),
        (call("demo.echo", {}) + call("demo.echo", {}), "two_actions", ""),
        (answer("\u200b\u2060 \n"), "missing_field", "not empty"),
    ],
)
def test_an_unusable_reply_is_explained_in_a_sentence(reply: str, code: str, says: str) -> None:
    verdict = judge(reply)

    assert isinstance(verdict, Repair)
    assert verdict.code == code
    assert says in verdict.sentences
    assert verdict.sentences.endswith(".") or ":" in verdict.sentences


def test_a_shown_answer_is_kept_although_the_reply_is_broken() -> None:
    kept = only_item(judge(cut_answer("As far as"), shown="As far as"))

    assert isinstance(kept, GiveAnswer)
    assert kept.text == "As far as"


def test_a_call_after_an_answer_that_was_seen_is_dropped() -> None:
    kept = only_item(judge(answer("Done.") + call("demo.echo", {}), shown="Done."))

    assert isinstance(kept, GiveAnswer)
    assert kept.text == "Done."


def test_answer_text_on_a_tool_action_is_dropped_and_the_tool_runs() -> None:
    reply = call("demo.echo", {}).replace('"notes": ""', '"notes": "", "final_answer": "early"')

    verdict = judge(reply)

    assert isinstance(only_item(verdict), UseTool)
    assert isinstance(verdict, Work)
    assert verdict.remarks is not None
    assert verdict.remarks.code == "answer_with_call"


def test_only_actions_with_invalid_arguments_are_refused() -> None:
    verdict = judge(call("demo.echo", {"other": 1}) + call("demo.echo", {"text": "x"}), fanout=True)

    assert isinstance(verdict, Work)
    assert [use.raw_params for use in verdict.calls] == [{"text": "x"}]
    assert [repair.code for repair in verdict.refused] == ["bad_tool_call"]


def test_the_first_refusal_is_reported_if_no_action_is_left() -> None:
    verdict = judge(call("demo.echo", {"other": 1}) + call("demo.none", {}), fanout=True)

    assert isinstance(verdict, Repair)
    assert verdict.code == "bad_tool_call"


def test_an_answer_beside_calls_is_kept_with_them_in_order() -> None:
    verdict = judge(call("demo.plan", {}) + answer("Done."), shown="Done.", fanout=True)

    assert isinstance(verdict, Work)
    assert [type(item) for item in verdict.items] == [UseTool, GiveAnswer]
    assert verdict.answer is not None


def test_a_shown_answer_of_a_broken_action_is_kept_with_the_calls() -> None:
    verdict = judge(call("demo.plan", {}) + cut_answer("As far as"), shown="As far as", fanout=True)

    assert isinstance(verdict, Work)
    assert verdict.answer is not None
    assert verdict.answer.text == "As far as"
    assert len(verdict.calls) == 1
