import pytest
from turn_harness.tools import DemoTool, TextParams

from chat_proc.agent.drafting import (
    MAX_RAW_CHARS,
    GiveAnswer,
    Repair,
    RoundContext,
    UseTool,
    Work,
    draft_answer,
    draft_attempt,
    draft_call,
    draft_missing_start,
    draft_notices,
    draft_pending_answer,
    draft_plan_marks,
    draft_repair,
    draft_thinking,
    draft_work,
    find_begun_action,
    write_round,
)
from chat_proc.agent.generation import RoundTexts
from chat_proc.channels.actions import Decision, StreamedAnswer
from everturn.core.ids import CallId, PlanId, TurnId
from everturn.timeline.blocks import AttemptBody, BlockDraft, BlockType, CompletionBody, RawDecisionBody, chain_blocks
from everturn.timeline.plans import PlanMoment, new_plan
from everturn.timeline.progress import PENDING, fold_progress

CONTEXT = RoundContext(TurnId("turn_1"), 2, 15, "t9")


def texts(*said: tuple[str, int, str]) -> RoundTexts:
    made = RoundTexts(lambda _event, _round: None, 2, lambda: "t1")
    for channel, instance, text in said:
        made.say(channel, instance, text, marker=channel)
    return made


def types(drafts: list[BlockDraft]) -> list[BlockType]:
    return [draft.type for draft in drafts]


def use(
    tool_id: str = "demo.echo", params: dict[str, object] | None = None, code: str | None = None, notes: str = ""
) -> UseTool:
    return UseTool(DemoTool(tool_id).spec, TextParams(), params or {}, code, notes)


def test_a_round_begins_once() -> None:
    (start,) = draft_missing_start(CONTEXT, fold_progress(()))

    assert (start.type, start.round) == (BlockType.ROUND_START, 2)
    assert draft_missing_start(CONTEXT, fold_progress(chain_blocks([start], next_seq=1, last_hash=""))) == []


def test_each_thinking_channel_is_one_block_with_its_first_time() -> None:
    drafts = draft_thinking(CONTEXT, texts(("thinking", 1, "b"), ("thinking", 0, "a")))

    assert [draft.body.model_dump() for draft in drafts] == [
        {"text": "a", "instance": 0},
        {"text": "b", "instance": 1},
    ]
    assert {draft.ts_first for draft in drafts} == {"t1"}


def test_notes_and_program_come_before_their_call() -> None:
    drafts = draft_call(CONTEXT, texts(("notes", 0, "n")), use(code="print()", notes="n"), CallId("call_1"))

    assert types(drafts) == [BlockType.NOTES, BlockType.TOOL_CODE, BlockType.TOOL_CALL]
    assert {draft.call_id for draft in drafts} == {"call_1"}


def test_a_too_long_reply_is_cut() -> None:
    raw, notice = draft_repair(CONTEXT, Repair("not_json", "Fix it."), "x" * (MAX_RAW_CHARS + 1))

    assert isinstance(raw.body, RawDecisionBody)
    assert len(raw.body.text) == MAX_RAW_CHARS
    assert notice.type is BlockType.NOTICE


def test_an_answer_keeps_what_was_shown_only_where_it_differs() -> None:
    same = draft_answer(CONTEXT, texts(("answer", 0, "A")), GiveAnswer("A", "A"), 1)[-1].body
    cited = draft_answer(CONTEXT, texts(("answer", 0, "A (1)")), GiveAnswer("A [[S:1]]", "A (1)", summary="s"), 2)

    assert same == CompletionBody(text="A")
    assert types(cited) == [BlockType.WORKING_SUMMARY, BlockType.COMPLETION]
    assert cited[-1].body == CompletionBody(text="A [[S:1]]", shown="A (1)")


def test_an_attempt_is_kept_when_anything_was_shown_of_it() -> None:
    decision = Decision(raw="", answer=StreamedAnswer("A [[S:1]]", "A (1)", (1,)))

    assert draft_attempt(CONTEXT, texts(), decision, "steered") == []
    (attempt,) = draft_attempt(CONTEXT, texts(("answer", 0, "A (1)")), decision, "steered")
    assert attempt.type is BlockType.COMPLETION_ATTEMPT


def test_a_marked_plan_is_two_blocks() -> None:
    (plan,) = new_plan((), plan_id=PlanId("plan_1"), labels=["a"], moment=PlanMoment(CONTEXT.turn_id, "now"))

    assert types(draft_plan_marks(CONTEXT, plan, "✓ [1] a", 1)) == [BlockType.PLAN_ACK, BlockType.PLAN]


def test_clients_that_saw_what_the_blocks_hold_are_not_rewound() -> None:
    said = texts(("thinking", 0, "t"), ("notes", 0, "n"), ("answer", 0, "A"))
    drafts = [*draft_thinking(CONTEXT, said), *draft_answer(CONTEXT, said, GiveAnswer("A", "A"), 1)]

    assert not write_round(drafts, said).rewind


def test_clients_that_saw_more_than_the_blocks_hold_are_rewound() -> None:
    said = texts(("notes", 0, "n"))

    assert write_round(draft_repair(CONTEXT, Repair("x", "y"), ""), said).rewind


def test_clients_that_saw_less_than_the_blocks_hold_are_rewound() -> None:
    params: dict[str, object] = {"path": "a.md", "channel": "canvas", "content": "whole"}
    drafts = draft_call(CONTEXT, texts(), use("react.write", params), CallId("call_1"))

    assert write_round(drafts, texts()).rewind
    assert not write_round(drafts, texts(("canvas", 0, "whole"))).rewind


def test_what_a_reply_does_is_drafted_in_the_order_in_which_it_was_written() -> None:
    work = Work((use(notes="one"), GiveAnswer("A", "A", notes="two"), use()), (Repair("x", "y"),))

    drafts = draft_work(CONTEXT, texts(), work, [CallId("call_1"), CallId("call_2")])

    assert types(drafts) == [
        BlockType.NOTES,
        BlockType.TOOL_CALL,
        BlockType.NOTES,
        BlockType.COMPLETION_ATTEMPT,
        BlockType.TOOL_CALL,
        BlockType.NOTICE,
    ]


def test_each_refused_action_has_its_own_notice() -> None:
    refused, remarks = (Repair("a", "A."), Repair("b", "B.")), Repair("c", "C.")

    going_on = draft_notices(CONTEXT, Work((use(),), refused, remarks))
    ending = draft_notices(CONTEXT, Work((GiveAnswer("A", "A"),), refused, remarks))

    assert [draft.body.model_dump()["code"] for draft in going_on] == ["a", "b", "c"]
    assert len({draft.ref for draft in going_on}) == 3
    assert [draft.body.model_dump()["code"] for draft in ending] == ["a", "b"]


def test_clients_that_saw_the_texts_of_several_actions_are_not_rewound() -> None:
    params: dict[str, object] = {"path": "a.md", "channel": "canvas", "content": "whole"}
    said = texts(("notes", 0, "n"), ("notes", 1, "m"), ("canvas", 2, "whole"))
    work = Work((use(notes="n"), use(), use("react.write", params, notes="m")))

    drafts = draft_work(CONTEXT, said, work, [CallId("c1"), CallId("c2"), CallId("c3")])

    assert not write_round(drafts, said).rewind


def test_a_pending_answer_becomes_the_completion() -> None:
    answer = GiveAnswer("A [[S:1]]", "A (1)", ("Why?",), (1,), "summary")
    drafts = draft_pending_answer(CONTEXT, texts(("answer", 0, "A (1)")), answer, 0)
    attempt = drafts[-1].body
    assert isinstance(attempt, AttemptBody)

    assert types(drafts) == [BlockType.WORKING_SUMMARY, BlockType.COMPLETION_ATTEMPT]
    assert (attempt.text, attempt.shown, attempt.followups) == ("A [[S:1]]", "A (1)", ("Why?",))
    assert (attempt.sources_used, attempt.reason, drafts[-1].ts_first) == ((1,), PENDING, "t1")


@pytest.mark.parametrize(
    ("raw", "begun"),
    [
        ("", ""),
        ("<channel:thinking>Hm", ""),
        ("<channel:thinking>Hm</channel:Thinking> ", ""),
        ("<channel:thinking>Hm</channel:thinking>\n<channel:action>{", "<channel:action>{"),
        ("<channel:action>{", "<channel:action>{"),
    ],
)
def test_the_begun_action_is_the_text_after_the_thinking(raw: str, begun: str) -> None:
    assert find_begun_action(raw) == begun
