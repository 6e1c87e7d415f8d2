from collections.abc import Sequence

import pytest
from helpers.linear_cost import check_linear, repeat
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.channels.actions import Decision
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.decision_stream import DecisionStream
from chat_proc.channels.pieces import AnswerText, AnswerWithdrawn, DecisionPiece
from chat_proc.channels.prose import read_usable_text, recover_answer

CALL = '<channel:action>{"action": "call_tool", "tool_call": {"tool_id": "t", "params": {}}}</channel:action>'
DONE = '<channel:action>{"action": "complete", "final_answer": "Done."}</channel:action>'


def read(chunks: Sequence[str]) -> tuple[list[DecisionPiece], Decision]:
    stream = DecisionStream(limits=DecisionLimits(stops_early=False))
    pieces = [piece for chunk in chunks for piece in stream.feed(chunk)]
    last, decision = stream.finish()
    return [*pieces, *last], decision


def shown(pieces: Sequence[DecisionPiece]) -> str:
    """The answer that a client has at the end."""
    text = ""
    for piece in pieces:
        match piece:
            case AnswerText():
                text += piece.text
            case AnswerWithdrawn():
                text = ""
            case _:
                """Not about the answer."""
    return text


def test_an_answer_in_prose_is_streamed_from_its_first_words_on() -> None:
    stream = DecisionStream()

    assert stream.feed("\n The answer") == []
    assert stream.feed(" is four") == [AnswerText("The answer is four", 0)]
    assert stream.feed(", <") == [AnswerText(",", 0)]
    assert stream.feed("b>four</b>. \n") == [AnswerText(" <b>four</b>.", 0)]
    _, decision = stream.finish()

    assert decision.actions[0].final_answer == "The answer is four, <b>four</b>."
    assert decision.problems == () and decision.cut_reason is None


PARTS = (
    *("The answer ", "is 4.", " ", "\n", "<", "<b>", "<tool_call>", "<chan", "[[S:1]]"),
    *('{"a": 1}', '{"action": "search"}', "```json\n", "```"),
    *("<channel:thinking>", "</channel:thinking>", "<channel:answer>", "</channel:answer>", CALL, DONE),
)


@given(st.lists(st.sampled_from(PARTS), max_size=8).map("".join), st.data())
def test_the_answer_does_not_depend_on_the_chunks(reply: str, data: st.DataObject) -> None:
    whole, decision = read([reply])
    cuts = sorted(data.draw(st.sets(st.integers(0, len(reply)), max_size=12)))
    chunks = [reply[a:b] for a, b in zip([0, *cuts], [*cuts, len(reply)], strict=True)]

    pieces, again = read(chunks)

    assert shown(pieces) == shown(whole)
    assert again == decision
    assert decision.answer is None or shown(whole) == decision.answer.shown


@pytest.mark.parametrize("end", [CALL, DONE, '<tool_call>{"name": "x"}</tool_call>', "<channel:answer>Done."])
def test_prose_is_withdrawn_if_the_reply_goes_on_with_something_else(end: str) -> None:
    prose = "I will look at the file first."

    pieces, decision = read([prose, " ", end])

    assert AnswerText(prose, 0) in pieces and AnswerWithdrawn() in pieces
    assert shown(pieces) == ("Done." if "Done." in end else "")
    assert decision.answer is None or decision.answer.raw == "Done."


@pytest.mark.parametrize(
    "text",
    [
        "<think>Two and two.</think>\nIt is 4.",
        "Two and two.</think>\nIt is 4.",
        "It is 4.</channel:answer>",
        "</channel:thinking>It is 4.</think>",
        "<answer>It is 4.</answer>",
    ],
)
def test_reasoning_and_stray_tags_are_dropped_from_an_answer(text: str) -> None:
    assert read_usable_text(text) == "It is 4."


@pytest.mark.parametrize(
    "text",
    [
        "A call begins with `<tool_call>`.",
        "Reasoning ends with `</think>`, then comes the answer.",
        "Write this:\n```xml\n<tool_call>{}</tool_call>\n```\nand wait.",
    ],
)
def test_markup_in_code_is_part_of_an_answer(text: str) -> None:
    pieces, decision = read([text])

    assert read_usable_text(text) == text == shown(pieces)
    assert decision.actions[0].final_answer == text


def test_an_action_that_breaks_off_after_prose_is_not_an_answer() -> None:
    pieces, decision = read(['I will read it.\n{"action": "tool_call", "tool": "react.re'])

    assert shown(pieces) == "" and decision.actions == ()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"action": "final_answer", "answer": "Press "Save" first."}', 'Press "Save" first.'),
        ('```json\n{"action": "final_answer", "answer": "Press "Save"."}\n```', 'Press "Save".'),
        ('{"action": "final_answer", "answer": "Press "Save".\\nThen "Close"."}', 'Press "Save".\nThen "Close".'),
        ('{"action": "final_answer", "answer": "\\"C:\\new\\x" \\u00e9"}', '"C:\new\\x" \u00e9'),
        ('{"action": "complete", "notes": "Done.", "final_answer": "Press "Save"."}', 'Press "Save".'),
        ('{"action": "final_answer", "answer": "Press "Save".", "reasoning": "It is"}', 'Press "Save".'),
        ('<channel:action>{"action": "exit", "final_answer": "A "b"."}</channel:action>', 'A "b".'),
        ('{"action": "final_answer", "answer": "It is \\"4\\"."} Hm.', 'It is "4".'),
        ('{"action": "tool_call", "tool": "say", "args": {"answer": "Press "Save"."}}', ""),
        ('I would send {"action": "final_answer", "answer": "Press "Save"."}', ""),
        ('{"action": "final_answer", "answer": "Press "Save', ""),
        ('Press "Save".', ""),
        ("", ""),
    ],
)
def test_an_answer_that_is_not_escaped_is_recovered(text: str, answer: str) -> None:
    assert recover_answer(text) == answer


@pytest.mark.parametrize("unit", ['"', '" ', '", "notes"', "\\", '"}'])
def test_an_answer_is_recovered_in_linear_time(unit: str) -> None:
    check_linear(
        recover_answer, repeat(unit, before='{"action": "final_answer", "answer": "', after='x"}'), chars=20_000
    )
