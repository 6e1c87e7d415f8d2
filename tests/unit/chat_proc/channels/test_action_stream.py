import json

import pytest

from chat_proc.channels.action_stream import ActionStream
from chat_proc.channels.actions import Action, ActionRefusal, StreamedAnswer
from chat_proc.channels.citations import CitationReplacer
from chat_proc.channels.pieces import AnswerText, ContentText, DecisionPiece, FieldClosed, NotesText
from everturn.timeline.sources import Source

SOURCES = {1: Source(1, "One", "https://one.example")}


def stream(text: str, size: int = 1_000_000, *, cites: bool = True) -> tuple[ActionStream, list[DecisionPiece]]:
    action = ActionStream(0, CitationReplacer(SOURCES) if cites else None)
    pieces = [piece for start in range(0, len(text), size) for piece in action.feed(text[start : start + size])]
    return action, pieces + action.finish()[0]


def answer_of(pieces: list[DecisionPiece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, AnswerText))


def test_the_answer_streams_with_its_citations_replaced() -> None:
    text = json.dumps({"action": "complete", "notes": "", "final_answer": "See [[S:1]]. [[S:"})

    for size in range(1, len(text)):
        action, pieces = stream(text, size)

        assert answer_of(pieces) == "See [One](https://one.example). [[S:"
        assert pieces[-1] == FieldClosed("answer", 0, complete=True)
        assert action.answer == StreamedAnswer("See [[S:1]]. [[S:", "See [One](https://one.example). [[S:", (1,))


def test_an_answer_written_before_its_action_waits_for_it() -> None:
    action = ActionStream(0, CitationReplacer(SOURCES))

    assert action.feed('{"final_answer": "x", "action": "comp') == []
    assert action.feed('lete"') == [AnswerText("x", 0), FieldClosed("answer", 0, complete=True)]


def test_the_answer_of_a_tool_call_is_not_shown() -> None:
    action, pieces = stream('{"final_answer": "x", "action": "call_tool", "final_answer": "y"}')

    assert pieces == []
    assert action.answer is None


def test_an_answer_is_streamed_only_with_citations_to_replace() -> None:
    assert stream('{"action": "exit", "final_answer": "x"}', cites=False)[1] == []


def test_notes_and_content_stream_with_what_is_known_so_far() -> None:
    text = json.dumps(
        {
            "action": "call_tool",
            "notes": "writing",
            "tool_call": {
                "tool_id": "react.write",
                "params": {"path": "files/a", "channel": "canvas", "content": "body", "kind": "file"},
            },
        }
    )

    _, pieces = stream(text)

    assert pieces == [
        NotesText("writing", 0),
        FieldClosed("notes", 0, complete=True),
        ContentText("body", 0, "content", tool_id="react.write", path="files/a", channel="canvas", kind=None),
        FieldClosed("content", 0, complete=True),
    ]


def test_an_answer_that_breaks_off_says_so() -> None:
    action, pieces = stream('{"action": "exit", "final_answer": "half')

    assert pieces == [AnswerText("half", 0), FieldClosed("answer", 0, complete=False)]
    assert not isinstance(action.finish()[1], Action)


CALL = '{"action": "call_tool", "tool_call": {"tool_id": "look", "params": {}}}'
FINAL = '{"action": "complete", "final_answer": "It is 4."}'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (CALL + CALL, "two_objects"),
        (CALL + FINAL, "two_objects"),
        (FINAL + CALL, "two_objects"),
        (CALL + " That is it.", "text_after_object"),
        ('{"action": "call_tool", ' + CALL[1:], "duplicate_key"),
        (CALL[:-1] + ', "score": NaN}', "not_a_number"),
        (CALL[:-1] + ', "score": 1e999}', "number_too_large"),
        (CALL[:-1] + ', "notes": "I wi', "not_json"),
        (CALL.replace("{}", '{"a": ' + "[" * 100 + "]" * 100 + "}"), "too_deep"),
        ('{"action": "complete", "final_answer": "x", ' + CALL[24:], "contradiction"),
        (f"[{CALL}, {CALL}]", "not_an_object"),
    ],
)
def test_a_refused_action_is_not_replaced_by_what_is_found_in_it(text: str, kind: str) -> None:
    action = ActionStream(0, CitationReplacer(SOURCES), {"look": "look"})
    action.feed(text)

    refusal = action.finish()[1]
    assert isinstance(refusal, ActionRefusal) and refusal.kind == kind


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [
        (FINAL, False),
        (FINAL[:-1], False),
        (FINAL[:-8], False),
        (FINAL + CALL, False),
        (FINAL[:-1] + ', "suggested_followups": "x"}', False),
        (FINAL.replace("is", 'i"s'), True),
        (FINAL.replace("is", "i\\s"), True),
        (FINAL[:-1] + ', "score": NaN}', True),
        (FINAL[:-1] + ', "final_answer": "Four."}', True),
    ],
)
def test_an_object_is_broken_if_it_is_invalid_before_its_end(text: str, is_broken: bool) -> None:
    assert stream(text)[0].is_broken == is_broken
