from turn_harness.tools import TextParams

from chat_proc.agent.drafting import GiveAnswer, Repair, UseTool, Work
from chat_proc.agent.signal_folding import check_finalizing, finalize_tools
from chat_proc.catalog.tool import ToolSpec
from everturn.turns.model import Effect


def use(tool_id: str) -> UseTool:
    spec = ToolSpec(tool_id=tool_id, summary="", guide="", params=TextParams, effect=Effect.PURE)
    return UseTool(spec, TextParams(), {}, None, "")


def test_only_offered_tools_are_named() -> None:
    assert finalize_tools([use("react.hide").spec, use("web_tools.web_search").spec]) == ("react.hide",)


def test_only_finishing_tools_are_allowed_after_a_steer() -> None:
    allowed = ("react.write", "react.patch", "react.plan", "react.hide")

    for tool_id in allowed:
        assert check_finalizing(Work((use(tool_id),)), allowed) == Work((use(tool_id),))
    refused = check_finalizing(Work((use("web_tools.web_search"),)), allowed)
    assert isinstance(refused, Repair)
    assert all(tool_id in refused.sentences for tool_id in allowed)


def test_only_actions_that_begin_new_work_are_refused() -> None:
    verdict = check_finalizing(Work((use("react.plan"), use("web_tools.web_search"))), ("react.plan",))

    assert isinstance(verdict, Work)
    assert [item.spec.tool_id for item in verdict.calls] == ["react.plan"]
    assert [repair.code for repair in verdict.refused] == ["not_while_finalizing"]


def test_an_answer_is_always_welcome() -> None:
    assert check_finalizing(Work((GiveAnswer("a", "a"),)), ()) == Work((GiveAnswer("a", "a"),))


def test_without_any_such_tool_the_notice_says_so() -> None:
    refused = check_finalizing(Work((use("web_tools.web_search"),)), ())

    assert isinstance(refused, Repair)
    assert "Allowed tools: none" in refused.sentences
