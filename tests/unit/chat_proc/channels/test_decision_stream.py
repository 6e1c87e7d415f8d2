import json
from collections.abc import Callable

import pytest

from chat_proc.channels.actions import Action, Decision, FanoutRules, Program, ToolCall
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.decision_stream import DecisionStream
from chat_proc.channels.parser import ChannelClosed, ChannelOpened
from chat_proc.channels.pieces import (
    AnswerText,
    CodeText,
    ContentText,
    DecisionPiece,
    FieldClosed,
    NotesText,
    ThinkingText,
)
from chat_proc.channels.reply_parts import clean_program
from everturn.models.port import FinishReason
from everturn.timeline.sources import Source

RULES = FanoutRules({"react.read": "neutral", "run_code": "neutral"}, frozenset({"run_code"}))
SOURCES = (Source(1, "One", "https://one.example"),)


def read(
    reply: str, size: int = 1_000_000, limits: DecisionLimits | None = None
) -> tuple[list[DecisionPiece], Decision]:
    stream = DecisionStream(sources=SOURCES, limits=limits or DecisionLimits())
    pieces = [piece for start in range(0, len(reply), size) for piece in stream.feed(reply[start : start + size])]
    last, decision = stream.finish()
    return pieces + last, decision


def action(**fields: object) -> str:
    return f"<channel:action>{json.dumps(fields)}</channel:action>"


def call(tool_id: str, **params: object) -> str:
    return action(action="call_tool", notes="", tool_call={"tool_id": tool_id, "params": params})


def shown(
    pieces: list[DecisionPiece], kind: type[AnswerText | CodeText | ThinkingText | NotesText | ContentText]
) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, kind))


def problem_kinds(decision: Decision) -> list[str]:
    return [problem.kind for problem in decision.problems]


FINAL_REPLY = (
    "<channel:thinking>\nIt`s known.\n</channel:thinking>\n"
    + action(
        action="complete",
        notes="",
        tool_call=None,
        final_answer="See [[S:1]] \U0001f600",
        suggested_followups=["More?"],
    )
    + "\n<channel:code></channel:code>\n<channel:summary>Goal: x</channel:summary>"
)


def test_a_final_reply_is_read_whole_however_it_is_cut() -> None:
    for size in [*range(1, 40), 1_000_000]:
        pieces, decision = read(FINAL_REPLY, size)

        assert shown(pieces, ThinkingText) == "\nIt`s known.\n"
        assert shown(pieces, AnswerText) == "See [One](https://one.example) \U0001f600"
        assert decision.actions == (
            Action("complete", final_answer="See [[S:1]] \U0001f600", suggested_followups=("More?",)),
        )
        assert decision.summary == "Goal: x"
        assert decision.answer is not None
        assert decision.answer.raw == "See [[S:1]] \U0001f600"
        assert decision.answer.shown == shown(pieces, AnswerText)
        assert decision.answer.used_sids == (1,)
        assert decision.raw == FINAL_REPLY
        assert decision.problems == ()


def test_a_program_is_read_with_the_action_that_runs_it() -> None:
    reply = (
        call("run_code", prog_name="p") + "\n<channel:code>\n```python\nprint('</channel:code>')\n```\n</channel:code>"
    )

    pieces, decision = read(reply, 5)

    assert decision.programs == (Program("print('</channel:code>')\n", for_action=0),)
    assert shown(pieces, CodeText) == "\n```python\nprint('</channel:code>')\n```\n"
    assert decision.problems == ()


def test_opened_and_closed_marks_frame_the_pieces() -> None:
    pieces, _ = read("<channel:thinking>a</channel:thinking>" + action(action="exit", final_answer="b"))

    assert pieces == [
        ChannelOpened("thinking", 0),
        ThinkingText("a", 0),
        ChannelClosed("thinking", 0, complete=True),
        ChannelOpened("action", 0),
        AnswerText("b", 0),
        FieldClosed("answer", 0, complete=True),
        ChannelClosed("action", 0, complete=True),
    ]


def test_repeated_channels_keep_their_order_and_pairs() -> None:
    reply = (
        "<channel:thinking>a</channel:thinking>"
        + call("react.read", paths=["x"])
        + "<channel:code></channel:code><channel:thinking>b</channel:thinking>"
        + call("run_code")
        + "<channel:code>\nprint()\n</channel:code>"
    )

    pieces, decision = read(reply, 3, DecisionLimits(fanout=RULES))

    assert [piece for piece in pieces if isinstance(piece, ThinkingText)] == [
        ThinkingText("a", 0),
        ThinkingText("b", 1),
    ]
    assert [acted.tool_call for acted in decision.actions] == [
        ToolCall("react.read", {"paths": ["x"]}),
        ToolCall("run_code", {}),
    ]
    assert decision.programs == (Program("print()\n", for_action=1),)
    assert decision.problems == ()


def test_only_the_first_answer_and_the_allowed_actions_are_shown() -> None:
    two_answers = action(action="exit", final_answer="one") + action(action="exit", final_answer="two")
    answer_after_call = call("react.write", content="x") + action(action="exit", final_answer="late")

    assert shown(read(two_answers, limits=DecisionLimits(fanout=RULES))[0], AnswerText) == "one"
    pieces, decision = read(answer_after_call)
    assert shown(pieces, AnswerText) == ""
    assert shown(pieces, ContentText) == "x"
    assert problem_kinds(decision) == ["two_actions"]


@pytest.mark.parametrize(
    ("reply", "kinds"),
    [
        ("", ["empty_reply"]),
        ("<tool_call>demo.echo</tool_call>", ["no_channel"]),
        ("<channel:thinking>x</channel:thinking>", ["no_action"]),
        ("Sure! " + action(action="exit", final_answer="x"), ["text_outside_channels"]),
        ("<channel:action>oops</channel:action>", ["not_json"]),
        (call("run_code"), ["call_without_code"]),
        (call("react.read") + "<channel:code>\nx\n</channel:code>", ["code_without_call"]),
        ("<channel:code>\nx\n</channel:code>" + call("run_code"), ["code_without_call", "call_without_code"]),
        (call("run_code") + "<channel:code>\nx\n", ["unclosed_code"]),
        (call("react.read") + "<channel:summary>s</channel:summary>", ["summary_without_final"]),
    ],
)
def test_a_bad_reply_has_problems_and_keeps_its_text(reply: str, kinds: list[str]) -> None:
    for size in (1, 1_000_000):
        _, decision = read(reply, size)

        assert problem_kinds(decision) == kinds
        assert decision.raw == reply
        assert all(problem.sentence for problem in decision.problems)


def test_a_shown_answer_survives_an_action_that_turns_out_broken() -> None:
    _, decision = read('<channel:action>{"action": "complete", "final_answer": "shown", "x": ')

    assert decision.actions == ()
    assert decision.answer is not None
    assert decision.answer.shown == "shown"
    assert [problem.kind for problem in decision.fatal_problems] == ["not_json"]


@pytest.mark.parametrize(
    ("reason", "interrupted", "thinking"),
    [
        ("stop", False, "I think.</channel:thi"),
        ("stop", True, "I think."),
        ("length", False, "I think."),
        ("content_filter", False, "I think."),
    ],
)
def test_only_a_reply_that_was_cut_loses_half_a_tag(reason: FinishReason, interrupted: bool, thinking: str) -> None:
    stream = DecisionStream()
    pieces = stream.feed("<channel:thinking>I think.</channel:thi")

    last, _ = stream.finish(reason, interrupted=interrupted)

    assert shown(pieces + last, ThinkingText) == thinking


def test_a_reply_that_reaches_its_cap_within_a_tag_shows_nothing_of_it() -> None:
    stream = DecisionStream(limits=DecisionLimits(max_reply_chars=30))
    pieces = stream.feed("<channel:thinking>short</channel:thinking>")

    last, _ = stream.finish()

    assert shown(pieces + last, ThinkingText) == "short"


@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_a_reply_past_its_cap_is_cut_and_named(size: int) -> None:
    stream = DecisionStream(limits=DecisionLimits(max_reply_chars=30))

    for start in range(0, 100, size):
        stream.feed(("<channel:thinking>" + "x" * 100)[start : start + size])
    _, decision = stream.finish()

    assert stream.is_over
    assert decision.raw == "<channel:thinking>" + "x" * 12
    assert "reply_too_long" in problem_kinds(decision)


def test_characters_that_cannot_be_stored_are_replaced() -> None:
    pieces, decision = read("<channel:thinking>a\x00b\ud800c</channel:thinking>")

    assert shown(pieces, ThinkingText) == "a\ufffdb\ufffdc"
    decision.raw.encode()


@pytest.mark.parametrize(
    ("written", "program"),
    [
        ("\n\n  x = 1\n\n", "  x = 1\n"),
        ("```python\nx\n```", "x\n"),
        ("\n```\nx\n\ny\n```\n", "x\n\ny\n"),
        ("```python\nx", "```python\nx\n"),
        (" \n ", ""),
    ],
)
def test_a_program_loses_its_fence_and_blank_edges(written: str, program: str) -> None:
    assert clean_program(written) == program


@pytest.mark.parametrize("size", [1, 16])
def test_work_grows_in_step_with_the_input(size: int, count_characters: Callable[[Callable[[], object]], int]) -> None:
    reply = (FINAL_REPLY + call("react.write", content="line\n\u00e9" * 200)) * 6

    handled = count_characters(lambda: read(reply, size, DecisionLimits(fanout=RULES)))

    assert handled < 100 * len(reply)


def test_each_action_is_returned_when_it_ends() -> None:
    stream = DecisionStream(limits=DecisionLimits(fanout=RULES))

    for number in range(3):
        pieces = stream.feed(call("react.read", paths=[f"`{number}"]))

        assert pieces[0] == ChannelOpened("action", number)
        assert pieces[-1] == ChannelClosed("action", number, complete=True)
