import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.channels.actions import Decision
from chat_proc.channels.codec import build_native_names
from chat_proc.channels.decision_problems import MAX_CALLS, DecisionLimits
from chat_proc.channels.native_stream import NativeStream
from chat_proc.channels.pieces import AnswerText, AnswerWithdrawn, CodeText, ContentText, DecisionPiece, ThinkingText
from everturn.core.settings import BadConfig
from everturn.models.port import FinishReason, ToolCallDelta

NAMES = build_native_names(["react.read", "react.write", "exec_tools.execute_code_python"])
Piece = str | ToolCallDelta


def call(index: int, name: str, params: object, size: int = 1_000_000) -> list[ToolCallDelta]:
    """A call as a provider streams it: its name first, then its arguments in pieces of `size` characters."""
    text = json.dumps(params)
    pieces = [ToolCallDelta(index, arguments=text[at : at + size]) for at in range(0, len(text), size)]
    return [ToolCallDelta(index, name=name, call_id=f"call_{index}"), *pieces]


def read(
    pieces: Sequence[Piece],
    reason: FinishReason = "stop",
    *,
    limits: DecisionLimits | None = None,
) -> tuple[list[DecisionPiece], Decision]:
    stream = NativeStream(names=NAMES, limits=limits or DecisionLimits())
    shown: list[DecisionPiece] = []
    for piece in pieces:
        shown += stream.feed(piece) if isinstance(piece, str) else stream.feed_call(piece)
    last, decision = stream.finish(reason)
    return [*shown, *last], decision


def calls_of(decision: Decision) -> list[tuple[str, dict[str, object]]]:
    calls = [action.tool_call for action in decision.actions if action.tool_call]
    return [(call.tool_id, dict(call.params)) for call in calls]


def test_text_without_a_call_is_the_answer_from_its_first_word_on() -> None:
    stream = NativeStream(names=NAMES, limits=DecisionLimits())

    assert stream.feed("It") == [AnswerText("It", 0)]
    assert stream.feed(" is 4. ") == [AnswerText(" is 4.", 0)]
    _, decision = stream.finish()

    assert decision.actions[0].final_answer == "It is 4."
    assert decision.cut_reason is None and decision.problems == ()


def test_text_beside_calls_is_thinking() -> None:
    pieces, decision = read(["I will read it.", *call(0, "react__read", {"items": []}), " Then I go on."])

    assert AnswerWithdrawn() in pieces
    assert [piece.text for piece in pieces if isinstance(piece, ThinkingText)] == ["I will read it.", " Then I go on."]
    assert decision.beside == "I will read it. Then I go on."
    assert calls_of(decision) == [("react.read", {"items": []})] and decision.answer is None


def test_calls_that_are_written_at_the_same_time_keep_their_order() -> None:
    first, second = call(0, "react__read", {"path": "a"}, 3), call(1, "react__read", {"path": "b"}, 3)
    mixed = [piece for pair in zip(first, second, strict=True) for piece in pair]

    _, decision = read(mixed)

    assert calls_of(decision) == [("react.read", {"path": "a"}), ("react.read", {"path": "b"})]


def test_a_program_is_the_last_parameter_of_its_call() -> None:
    params = {"goal": "sum", "code": "print(1)\n"}

    pieces, decision = read(call(0, "exec_tools__execute_code_python", params, 5))

    assert "".join(piece.text for piece in pieces if isinstance(piece, CodeText)) == "print(1)\n"
    assert calls_of(decision) == [("exec_tools.execute_code_python", {"goal": "sum"})]
    assert [(program.text, program.for_action) for program in decision.programs] == [("print(1)\n", 0)]


def test_written_content_is_streamed_with_its_path() -> None:
    params = {"path": "files/a.md", "channel": "canvas", "content": "Hello, you."}

    pieces, _ = read(call(0, "react__write", params, 4))

    content = [piece for piece in pieces if isinstance(piece, ContentText)]
    assert "".join(piece.text for piece in content) == "Hello, you."
    assert {(piece.tool_id, piece.path, piece.channel) for piece in content} == {
        ("react.write", "files/a.md", "canvas")
    }


@pytest.mark.parametrize(
    ("arguments", "reason", "kind"),
    [
        ('{"path": ', "stop", "not_json"),
        ("[1]", "stop", "not_json"),
        ('{"path": ', "length", "cut_by_length"),
        ("", "length", "cut_by_length"),
    ],
)
def test_a_call_without_valid_arguments_is_not_made(arguments: str, reason: FinishReason, kind: str) -> None:
    broken = [ToolCallDelta(1, name="react__read"), ToolCallDelta(1, arguments=arguments)]

    _, alone = read(broken, reason)
    _, beside = read([*call(0, "react__read", {}), *broken], reason)

    assert [problem.kind for problem in alone.fatal_problems] == [kind]
    assert calls_of(beside) == [("react.read", {})] and beside.fatal_problems == ()
    assert [problem.kind for problem in beside.problems] == [kind]
    assert reason != "length" or "Write less" in beside.problems[0].sentence


def test_the_calls_of_a_reply_are_bounded() -> None:
    _, decision = read([piece for n in range(MAX_CALLS + 3) for piece in call(n, "react__read", {})])

    assert len(decision.actions) == MAX_CALLS
    assert [problem.kind for problem in decision.problems] == ["too_many_actions"]


def test_the_arguments_of_calls_count_for_the_length_of_a_reply() -> None:
    _, decision = read(call(0, "react__write", {"content": "la " * 100}), limits=DecisionLimits(max_reply_chars=50))

    assert [problem.kind for problem in decision.fatal_problems] == ["reply_too_long"]


@given(st.lists(st.sampled_from(["Hm. ", "It is 4.", "<b>", " ", "\n"]), max_size=5).map("".join), st.data())
def test_the_decision_does_not_depend_on_the_chunks(text: str, data: st.DataObject) -> None:
    params = {"path": "files/é.md", "content": text, "code": "1"}
    _, decision = read([text, *call(0, "react__write", params)])
    cut, size = data.draw(st.integers(0, len(text))), data.draw(st.integers(1, 9))

    pieces, again = read([text[:cut], text[cut:], *call(0, "react__write", params, size)])

    assert again == decision
    assert "".join(piece.text for piece in pieces if isinstance(piece, ContentText)) == text


def test_the_arguments_of_a_call_are_not_part_of_the_text_before_it() -> None:
    pieces, decision = read(["Let me see.", ToolCallDelta(0, '{"paths": []}', "react__read")])

    assert [piece for piece in pieces if isinstance(piece, ThinkingText)] == [ThinkingText("Let me see.", 0)]
    assert decision.beside == "Let me see."


def test_names_are_unique_and_short() -> None:
    assert NAMES["react__read"] == "react.read"
    with pytest.raises(BadConfig, match="same name"):
        build_native_names(["a.b", "a__b"])
    with pytest.raises(BadConfig, match="64 characters"):
        build_native_names(["a" * 65])


WRITTEN = '{"name": "react__read", "arguments": {"paths": ["a"]}}'


@pytest.mark.parametrize(
    "text",
    [
        WRITTEN,
        f"<tool_call>\n{WRITTEN}\n</tool_call>",
        f"```json\n{WRITTEN}\n```",
        '<tool_call>{"name": "react.read", "arguments": "{\\"paths\\": [\\"a\\"]}"}</tool_call>',
        '[{"type": "function", "function": {"name": "react__read", "arguments": {"paths": ["a"]}}}]',
    ],
)
def test_calls_that_a_server_left_in_the_text_are_made(text: str) -> None:
    pieces, decision = read([text[:7], text[7:]])

    assert calls_of(decision) == [("react.read", {"paths": ["a"]})]
    assert not any(isinstance(piece, AnswerText) for piece in pieces)


@pytest.mark.parametrize(
    "call",
    [
        WRITTEN,
        '<channel:action>{"action": "call_tool", "tool_call": {"tool_id": "react.read"}}</channel:action>',
    ],
)
def test_calls_in_the_text_are_bounded_too(call: str) -> None:
    _, decision = read([f"{call}\n" * (MAX_CALLS + 2)])

    assert len(decision.actions) == MAX_CALLS
    assert [problem.sentence for problem in decision.problems] == [
        f"A reply may have at most {MAX_CALLS} calls; 2 more were not made."
    ]


@pytest.mark.parametrize("text", ["[1, 2]", "```python\nprint(1)\n```", "`x` is 4."])
def test_other_json_and_code_is_an_answer(text: str) -> None:
    pieces, decision = read([text])

    assert decision.actions[0].final_answer == text
    assert "".join(piece.text for piece in pieces if isinstance(piece, AnswerText)) == text


@pytest.mark.parametrize("arguments", ["null", '"{\\"paths\\": [\\"a\\"]}"'])
def test_null_and_arguments_that_are_encoded_twice_are_read(arguments: str) -> None:
    _, decision = read([ToolCallDelta(0, name="react__read"), ToolCallDelta(0, arguments=arguments)])

    assert calls_of(decision) in ([("react.read", {})], [("react.read", {"paths": ["a"]})])
