"""Which delta belongs to which call; the forms of each server are in the contract tests."""

from helpers.linear_cost import check_linear, repeat

from chat_proc.models.tool_calls import ToolCallReader


def read(text: str) -> str:
    """The arguments of the last call, if each part repeats the id and the name."""
    reader = ToolCallReader()
    parts = [reader.read(index=0, call_id="call_1", name="read", arguments=part) for part in text.split("|")]
    pieces = [piece for piece in parts if piece is not None]
    last = pieces[-1].index
    return "".join(piece.arguments for piece in pieces if piece.index == last)


def test_parts_that_repeat_id_and_name_are_read_in_linear_time() -> None:
    check_linear(read, repeat("{}|", before='{"a": "|', after='"}'))


def test_a_complete_object_ends_a_call_although_its_strings_hold_braces() -> None:
    assert read('{"a": "{"}|{"b": 1}') == '{"b": 1}'
    assert read('{"a": |{"b": 1}}') == '{"a": {"b": 1}}'
