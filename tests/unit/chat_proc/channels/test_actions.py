import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.channels.actions import Action, ActionReader, ActionRefusal, ToolCall, read_action
from chat_proc.channels.json_text import FieldText


def test_a_tool_call_is_read() -> None:
    action = read_action('{"action": "call_tool", "notes": "n", "tool_call": {"tool_id": "t", "params": {"a": [1]}}}')

    assert action == Action("call_tool", "n", ToolCall("t", {"a": [1]}))


def test_an_answer_is_read_with_its_followups() -> None:
    action = read_action(
        '```json\n{"action": "complete", "final_answer": "x", "suggested_followups": ["y"], "more": 1}\n```'
    )

    assert action == Action("complete", final_answer="x", suggested_followups=("y",))


def test_a_call_without_params_has_an_empty_object() -> None:
    assert read_action('{"action": "call_tool", "tool_call": {"tool_id": "t"}}') == Action(
        "call_tool", tool_call=ToolCall("t", {})
    )


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("I will search", "not_json", "one JSON object"),
        ('{"action": "exit"} {"action": "exit"}', "two_objects", "new action channel"),
        ('{"action": "exit", "action": "complete"}', "duplicate_key", '"action" twice'),
        ("[1]", "not_an_object", "of this form"),
        ("{}", "missing_field", '"action"'),
        ('{"action": "search"}', "unknown_action", "'search'"),
        ('{"action": 1}', "wrong_type", '"action" must be a string'),
        ('{"action": "call_tool"}', "missing_field", '"tool_call"'),
        ('{"action": "call_tool", "tool_call": [{"tool_id": "t"}]}', "wrong_type", "never a list"),
        ('{"action": "call_tool", "tool_call": {"params": {}}}', "missing_field", '"tool_id"'),
        ('{"action": "call_tool", "tool_call": {"tool_id": "t", "params": "x"}}', "wrong_type", "an object"),
        ('{"action": "complete", "tool_call": {"tool_id": "t"}, "final_answer": "x"}', "contradiction", "not both"),
        ('{"action": "complete", "final_answer": "  "}', "missing_field", '"final_answer"'),
        ('{"action": "complete", "final_answer": ["x"]}', "wrong_type", '"final_answer"'),
        ('{"action": "complete", "final_answer": "x", "suggested_followups": "y"}', "wrong_type", "list of strings"),
        ('{"action": "complete", "final_answer": "x", "suggested_followups": [1]}', "wrong_type", "list of strings"),
        ('{"action": "exit", "notes": {"a": NaN}}', "not_a_number", "NaN"),
        ('{"a":' * 100_000, "too_deep", "nesting"),
        ('{"a": ' + "9" * 100_000 + "}", "number_too_large", "too large"),
    ],
)
def test_an_invalid_action_is_refused_with_a_sentence(text: str, kind: str, message: str) -> None:
    refusal = read_action(text)

    assert isinstance(refusal, ActionRefusal)
    assert refusal.kind == kind
    assert message in refusal.sentence
    assert len(refusal.sentence) < 500


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_whatever_the_fields_hold_the_result_is_an_action_or_a_refusal(value: object) -> None:
    for field in ("action", "notes", "tool_call", "final_answer", "suggested_followups"):
        fields: dict[str, object] = {"action": "call_tool", "tool_call": {"tool_id": "t", "params": value}}
        fields[field] = value

        assert isinstance(read_action(json.dumps(fields)), Action | ActionRefusal)


def test_texts_stream_while_the_action_is_written() -> None:
    reader = ActionReader()

    pieces = reader.feed('{"action": "call_tool", "tool_call": {"tool_id": "t", "params": {"n": 1, "content": "a\\nb')

    assert [(piece.path[-1], piece.text) for piece in pieces if isinstance(piece, FieldText)] == [
        ("action", "call_tool"),
        ("tool_id", "t"),
        ("content", "a\nb"),
    ]
    assert reader.finish()[1] == read_action(
        '{"action": "call_tool", "tool_call": {"tool_id": "t", "params": {"n": 1, "content": "a\\nb'
    )


@given(st.text(), st.text(min_size=1), st.integers(1, 9), st.booleans())
def test_what_streamed_is_what_the_action_holds(notes: str, answer: str, size: int, escape: bool) -> None:
    text = json.dumps({"action": "exit", "notes": notes, "final_answer": "." + answer}, ensure_ascii=escape)
    reader = ActionReader()

    pieces = [piece for start in range(0, len(text), size) for piece in reader.feed(text[start : start + size])]
    _, action = reader.finish()

    assert isinstance(action, Action)
    for path, value in ((("notes",), action.notes), (("final_answer",), action.final_answer)):
        assert "".join(p.text for p in pieces if isinstance(p, FieldText) and p.path == path) == value


def test_an_answer_beside_a_call_is_left_out_and_the_call_stays() -> None:
    action = read_action('{"action": "call_tool", "tool_call": {"tool_id": "t"}, "final_answer": "x"}')

    assert action == Action("call_tool", tool_call=ToolCall("t", {}), dropped_answer=True)
