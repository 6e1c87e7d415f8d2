"""Calls in few words, whatever a program puts into them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.tools.code.program_calls import MAX_SHOWN_CHARS, bound_arguments, describe_value, fit_reply
from everturn.execution.messages import GATEWAY_FRAME_BYTES, ToolReply
from everturn.timeline.blocks import ToolCallBody, canonical_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=800) | st.binary(),
    lambda inner: st.lists(inner, max_size=60) | st.dictionaries(st.text(), inner, max_size=60),
    max_leaves=30,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_any_arguments_become_a_block_that_can_be_stored(arguments: dict[str, object]) -> None:
    body = ToolCallBody(tool_id="a.b", params=bound_arguments(arguments), parent="call_1")

    canonical_json(body).encode()


@given(VALUES)
def test_any_value_becomes_a_bounded_text_that_can_be_stored(value: object) -> None:
    text = describe_value(value)

    assert len(text) <= MAX_SHOWN_CHARS + 1
    assert "\0" not in text
    text.encode()


def test_long_and_deep_arguments_are_cut_and_bytes_are_counted() -> None:
    deep: object = "x"
    for _ in range(20):
        deep = [deep]

    reported = bound_arguments(
        {"text": "x" * 501, "raw": b"12345", "many": list(range(60)), "deep": deep, "bad": "\ud800"}
    )

    assert reported["text"] == "x" * 500 + "…"
    assert reported["raw"] == "(5 bytes)"
    assert reported["many"] == list(range(50))
    assert "…" in str(reported["deep"])
    assert reported["bad"] == "?"


@pytest.mark.parametrize(
    "value",
    ["x" * (100 << 20), b"x" * GATEWAY_FRAME_BYTES, ["x" * 1000] * 2000, {"a": list(range(1 << 20))}, "\x01" * 200_000],
)
def test_what_fits_no_frame_is_refused_as_too_large(value: object) -> None:
    assert fit_reply(ToolReply(3, True, value)).error_code == "too_large"


def test_invalid_json_is_refused_too() -> None:
    reply = fit_reply(ToolReply(3, True, {"when": object()}))

    assert (reply.id, reply.ok, reply.error_code) == (3, False, "too_large")


def test_what_fits_stays_as_it_is() -> None:
    reply = ToolReply(3, True, {"rows": [1, 2.5, None, "é"], "data": b"\x00"})

    assert fit_reply(reply) is reply
