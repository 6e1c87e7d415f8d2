import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.channels.actions import Decision
from chat_proc.channels.decision_problems import MAX_CALLS, DecisionLimits
from chat_proc.channels.json_stream import JsonStream
from chat_proc.channels.pieces import AnswerText, AnswerWithdrawn, CodeText, ContentText, DecisionPiece, ThinkingText
from everturn.models.port import FinishReason

CALL = {"action": "tool_call", "tool": "react.read", "args": {"paths": ["a"]}, "reasoning": "I have to read it."}
ANSWER = {"action": "final_answer", "answer": "It is **4**.\n\nIndeed.", "reasoning": "Simple."}


def read(pieces: Sequence[str], reason: FinishReason = "stop") -> tuple[list[DecisionPiece], Decision]:
    stream = JsonStream(limits=DecisionLimits())
    shown = [piece for text in pieces for piece in stream.feed(text)]
    last, decision = stream.finish(reason)
    return [*shown, *last], decision


def text_of(pieces: Sequence[DecisionPiece], kind: type[AnswerText | ThinkingText | CodeText | ContentText]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, kind))


def call_of(decision: Decision) -> tuple[str, dict[str, object]] | None:
    calls = [action.tool_call for action in decision.actions if action.tool_call]
    return (calls[0].tool_id, dict(calls[0].params)) if calls else None


def answer_of(decision: Decision) -> str | None:
    return decision.actions[0].final_answer if decision.actions else None


def test_an_answer_streams_while_it_is_written() -> None:
    text = json.dumps(ANSWER)
    stream = JsonStream(limits=DecisionLimits())

    early = stream.feed(text[: text.index("Indeed")])
    late = stream.feed(text[text.index("Indeed") :])
    last, decision = stream.finish()

    assert text_of(early, AnswerText).startswith("It is **4**.")
    assert text_of([*early, *late, *last], AnswerText) == ANSWER["answer"] == answer_of(decision)
    assert text_of(late, ThinkingText) == decision.beside == "Simple."


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CALL),
        f"```json\n{json.dumps(CALL)}\n```",
        f"I'll read it first.\n\n```json\n{json.dumps(CALL)}\n```",
        '{"action": "call_tool", "tool_call": {"tool_id": "react.read", "params": {"paths": ["a"]}}}',
        '{"tool": "react.read", "args": {"paths": ["a"]}}',
        '{"name": "react.read", "arguments": {"paths": ["a"]}}',
        '{"action": "react.read", "action_input": {"paths": ["a"]}}',
    ],
)
def test_a_call_is_read_in_all_forms_that_models_write(text: str) -> None:
    _, decision = read([text])

    assert call_of(decision) == ("react.read", {"paths": ["a"]})
    assert decision.fatal_problems == ()


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "final_answer", "answer": "It is 4."}',
        '{"action": "complete", "final_answer": "It is 4."}',
        '{"answer": "It is 4."}',
        '```json\n{"answer": "It is 4."}\n```',
        "It is 4.",
        "  It is 4.\n",
    ],
)
def test_an_answer_is_read_in_all_forms_that_models_write(text: str) -> None:
    pieces, decision = read([text])

    assert answer_of(decision) == text_of(pieces, AnswerText) == "It is 4." and decision.fatal_problems == ()
    assert decision.answer is not None and decision.answer.shown == "It is 4."


def test_text_before_an_object_is_shown_as_thinking_once_the_object_is_read() -> None:
    pieces, decision = read(["I will read the file now, ", "to be sure.\n", json.dumps(CALL)])

    assert any(isinstance(piece, AnswerWithdrawn) for piece in pieces)
    assert text_of(pieces, ThinkingText) == "I will read the file now, to be sure."
    assert call_of(decision) == ("react.read", {"paths": ["a"]})


def test_the_text_before_a_call_is_whole() -> None:
    pieces, _ = read([f"An example config is json\n{json.dumps(CALL)}"])

    assert text_of(pieces, ThinkingText) == "An example config is json"


def test_a_program_is_an_argument() -> None:
    args = {"contract": [], "code": "```python\nprint(1)\n```"}
    pieces, decision = read([json.dumps({"action": "tool_call", "tool": "run_code", "args": args})])

    assert [program.text for program in decision.programs] == ["print(1)\n"]
    assert call_of(decision) == ("run_code", {"contract": []})
    assert "print(1)" in text_of(pieces, CodeText)


def test_a_file_streams_if_its_path_comes_first() -> None:
    args = {"path": "files/a.md", "channel": "canvas", "content": "Text."}
    pieces, _ = read([json.dumps({"action": "tool_call", "tool": "react.write", "args": args})])

    content = [piece for piece in pieces if isinstance(piece, ContentText)]
    assert [(piece.tool_id, piece.path, piece.channel) for piece in content] == [
        ("react.write", "files/a.md", "canvas")
    ]


def test_an_answer_that_broke_off_is_kept_as_far_as_it_was_shown() -> None:
    text = json.dumps(ANSWER)
    pieces, decision = read([text[: text.index("Indeed")]], "length")

    assert text_of(pieces, AnswerText).strip() == "It is **4**."
    assert decision.cut_reason == "length" and decision.fatal_problems == ()


@pytest.mark.parametrize(
    ("text", "reason", "kind"),
    [
        ('{"action": "tool_call", "tool": "react.read", "args": {"pa', "stop", "not_json"),
        ('{"action": "tool_call", "tool": "react.read", "args": {"pa', "length", "cut_by_length"),
        ('{"action": "tool_call"}', "stop", "not_json"),
    ],
)
def test_a_reply_without_an_action_and_without_text_has_a_problem(text: str, reason: FinishReason, kind: str) -> None:
    _, decision = read([text], reason)

    assert [problem.kind for problem in decision.fatal_problems] == [kind]
    assert decision.actions == ()


BROKEN = '{"action": "final_answer", "answer": "Press "Save" first."}'


def test_an_answer_in_an_object_that_is_not_json_is_withdrawn() -> None:
    pieces, decision = read([BROKEN])

    assert text_of(pieces, AnswerText) == "Press " and isinstance(pieces[-1], AnswerWithdrawn)
    assert (decision.answer, decision.actions) == (None, ())
    (problem,) = decision.fatal_problems
    assert problem.kind == "not_json" and "column 46" in problem.sentence


def test_an_answer_in_an_object_that_is_not_json_is_kept_if_the_reply_was_cut() -> None:
    pieces, decision = read([BROKEN], "length")

    assert not any(isinstance(piece, AnswerWithdrawn) for piece in pieces)
    assert decision.answer is not None and decision.cut_reason == "length"


@pytest.mark.parametrize("end", ["", ', "reasoning": "So', ', "reasoning": "So."'])
def test_an_answer_in_an_object_that_only_lacks_its_end_is_whole(end: str) -> None:
    _, decision = read(['{"action": "final_answer", "answer": "It is 4."' + end])

    assert answer_of(decision) == "It is 4." and decision.cut_reason is None


@pytest.mark.parametrize(
    "fields",
    [
        {"answer": "It is 4.", "final_answer": "It is 4."},
        {"final_answer": "It is 4.", "answer": "Four."},
        {"answer": "", "final_answer": "It is 4."},
        {"answer": None, "final_answer": "It is 4."},
    ],
)
def test_an_answer_under_two_keys_is_one_answer(fields: dict[str, str | None]) -> None:
    pieces, decision = read([json.dumps({"action": "final_answer", **fields})])

    assert text_of(pieces, AnswerText) == answer_of(decision) == "It is 4."


def say(text: str) -> str:
    return json.dumps({"action": "tool_call", "tool": "react.read", "args": {"paths": [text]}})


@pytest.mark.parametrize(
    ("objects", "calls", "answer", "problems"),
    [
        ([say("a"), say("b")], ["a", "b"], None, []),
        ([say("a")] * (MAX_CALLS + 2), ["a"] * MAX_CALLS, None, ["too_many_actions"]),
        ([say("a"), json.dumps(ANSWER)], ["a"], None, ["answer_with_call"]),
        ([json.dumps(ANSWER), say("a")], [], ANSWER["answer"], ["two_actions"]),
        ([say("a"), BROKEN], ["a"], None, ["not_json"]),
    ],
)
def test_of_several_actions_the_rest_is_named(
    objects: list[str], calls: list[str], answer: str | None, problems: list[str]
) -> None:
    pieces, decision = read(["\n".join(objects)])

    made = [action.tool_call.params["paths"] for action in decision.actions if action.tool_call]
    assert made == [[each] for each in calls]
    assert (text_of(pieces, AnswerText) or None) == answer
    assert [(problem.kind, problem.fatal) for problem in decision.problems] == [(kind, False) for kind in problems]


def test_an_answer_that_was_only_thought_is_withdrawn_when_a_call_follows() -> None:
    pieces, decision = read([f"{json.dumps(ANSWER)}</think>\n{say('a')}"])

    assert isinstance(pieces[-1], AnswerWithdrawn)
    assert (decision.answer, len(decision.actions)) == (None, 1)


def test_of_a_closing_reply_only_the_answer_counts() -> None:
    stream = JsonStream(limits=DecisionLimits(), ignores_calls=True)
    stream.feed(f"{say('a')}\n{json.dumps(ANSWER)}")

    assert answer_of(stream.finish()[1]) == ANSWER["answer"]


REPLIES = [
    json.dumps(CALL), json.dumps(ANSWER), f"```json\n{json.dumps(ANSWER)}\n```", f"So.\n{json.dumps(CALL)}",
    "It is **4**, I think.", "```\n4\n```", '{"a": ', "`", "", "<tool_call>{}</tool_call>",
]  # fmt: skip


@given(st.sampled_from(REPLIES), st.lists(st.integers(0, 200), max_size=6))
def test_the_decision_does_not_depend_on_the_chunks(text: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    whole, decision = read([text])

    pieces, again = read([text[start:end] for start, end in pairwise(edges)])

    assert again == decision
    assert text_of(pieces, ThinkingText) == text_of(whole, ThinkingText)


@given(st.text(alphabet='{}[]",:`\\ \n<aA1é\ud800\x00', max_size=200))
def test_no_text_raises(text: str) -> None:
    read([text])
