import pytest
from turn_bench.replies import NONSENSE, answer, call, cut_answer
from turn_bench.tools import DemoTool

from chat_proc.agent.check import GiveAnswer, Repair, UseTool, Verdict, check_decision
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.decision_stream import DecisionStream
from chat_proc.tools.registry import ToolRegistry
from everturn.model.llm.decisions import Decision

CATALOG = ToolRegistry([DemoTool(), DemoTool("demo.run", takes_code=True)])


def read(reply: str) -> Decision:
    stream = DecisionStream(limits=DecisionLimits(code_tools=frozenset({"demo.run"})))
    stream.feed(reply)
    return stream.finish()[1]


def judge(reply: str, *, shown: str = "") -> Verdict:
    return check_decision(read(reply), shown, CATALOG)


def test_a_call_that_fits_is_used_with_its_arguments_as_written_and_as_read() -> None:
    verdict = judge(call("demo.echo", {"text": "x"}, notes="why"))

    assert isinstance(verdict, UseTool)
    assert verdict.raw_params == {"text": "x"}
    assert verdict.params.model_dump() == {"text": "x"}
    assert (verdict.code, verdict.notes) == (None, "why")


def test_a_program_goes_with_a_tool_that_takes_one() -> None:
    verdict = judge(call("demo.run", {}, code="print(1)"))

    assert isinstance(verdict, UseTool)
    assert verdict.code == "print(1)\n"


def test_an_answer_is_taken_with_all_that_belongs_to_it() -> None:
    verdict = judge(answer("Hello.", notes="n", followups=("Why?",), summary="greeted"), shown="Hello.")

    assert verdict == GiveAnswer("Hello.", "Hello.", ("Why?",), (), "greeted", "n")


@pytest.mark.parametrize(
    ("reply", "code", "says"),
    [
        (NONSENSE, "not_json", "JSON"),
        ("", "empty_reply", ""),
        ("Only words.", "no_channel", ""),
        ("<channel:thinking>Hm.</channel:thinking>", "no_action", "action"),
        (call("demo.none", {}), "bad_tool_call", "no tool"),
        (call("demo.echo", {"other": 1}), "bad_tool_call", "don't fit"),
        (call("demo.run", {}), "call_without_code", "code channel"),
        (call("demo.echo", {}) + call("demo.echo", {}), "two_actions", ""),
    ],
)
def test_what_can_not_be_used_is_told_in_a_sentence(reply: str, code: str, says: str) -> None:
    verdict = judge(reply)

    assert isinstance(verdict, Repair)
    assert verdict.code == code
    assert says in verdict.sentences
    assert verdict.sentences.endswith(".") or ":" in verdict.sentences


def test_an_answer_the_person_has_seen_is_kept_although_the_reply_is_broken() -> None:
    verdict = judge(cut_answer("As far as"), shown="As far as")

    assert isinstance(verdict, GiveAnswer)
    assert verdict.text == "As far as"


def test_a_call_after_an_answer_that_was_seen_is_dropped() -> None:
    verdict = judge(answer("Done.") + call("demo.echo", {}), shown="Done.")

    assert isinstance(verdict, GiveAnswer)
    assert verdict.text == "Done."
