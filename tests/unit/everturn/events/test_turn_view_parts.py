"""The parts that views and events share."""

import pytest

from everturn.core.ids import CallId, SignalId, TurnId
from everturn.events import turn_view as view_parts
from everturn.feedback.model import Feedback, Reaction
from everturn.timeline.blocks import (
    GENESIS_HASH,
    Block,
    BlockDraft,
    BlockType,
    SignalBody,
    ToolCallBody,
    ToolResultBody,
    chain_blocks,
)
from everturn_testing.events.scenarios import BEGINNING, make_artifact

TURN = TurnId("turn_1")


def block_of(body: ToolCallBody | SignalBody, kind: BlockType = BlockType.TOOL_CALL) -> Block:
    draft = BlockDraft(turn_id=TURN, round=2, type=kind, ref="tc:x", body=body, ts="", call_id=CallId("call_1"))
    return chain_blocks([draft], next_seq=1, last_hash=GENESIS_HASH)[0]


def test_the_address_of_a_file_quotes_tenant_and_project() -> None:
    artifact = make_artifact(TURN, "a.txt")

    view = view_parts.build_file_view(artifact, tenant="a/b", project="ü")

    assert view.url == "/files/a%2Fb/%C3%BC/art_a.txt"


def test_a_step_is_called_as_its_program() -> None:
    call = ToolCallBody(tool_id="exec_tools.run", params={"prog_name": "chart", "code": "print(1)"})

    step = view_parts.build_started_step(block_of(call), call)

    assert (step.title, step.tool_id, step.round) == ("chart", "exec_tools.run", 2)
    assert step.params == {"prog_name": "chart"}


def test_a_step_shows_the_beginning_of_its_program_and_its_length() -> None:
    call = ToolCallBody(tool_id="exec_tools.run", params={})

    short = view_parts.build_started_step(block_of(call), call, "print(1)")
    long = view_parts.build_started_step(block_of(call), call, "x" * 9_000)

    assert (short.code, short.code_chars) == ("print(1)", 8)
    assert (long.code, long.code_chars) == ("x" * 4_000, 9_000)


@pytest.mark.parametrize("status", ["error", "ambiguous", "cancelled"])
def test_an_unsuccessful_call_is_an_error_of_its_kind(status: str) -> None:
    call = ToolCallBody(tool_id="t", params={})
    started = view_parts.build_started_step(block_of(call), call)
    result = ToolResultBody.model_validate({"tool_id": "t", "status": status, "text": "x" * 2_001, "duration_ms": 7})

    ended = view_parts.build_ended_step(started, result)

    assert (ended.status, ended.error, ended.duration_ms) == ("error", status, 7)
    assert ended.result_preview == "x" * 2_000


@pytest.mark.parametrize(
    ("path", "expected"),
    [("a/B.MD", "markdown"), ("x.html", "html"), ("x.json", "json"), ("x.py", "text"), ("", "text")],
)
def test_the_extension_of_a_written_file_says_how_it_is_shown(path: str, expected: str) -> None:
    call = ToolCallBody(tool_id="react.write", params={"path": path, "channel": "canvas", "content": "hi"})

    written = view_parts.build_written_text(block_of(call), call, instance=3)

    assert written is not None
    assert (written.format, written.artifact, written.instance, written.marker) == (expected, path, 3, "canvas")


@pytest.mark.parametrize(
    "params",
    [
        {"path": "a", "channel": "internal", "content": "x"},
        {"path": "a", "content": "x"},
        {"path": "a", "channel": "canvas", "content": 3},
        {"channel": ["canvas"], "content": "x"},
    ],
)
def test_other_writing_is_not_shown(params: dict[str, object]) -> None:
    call = ToolCallBody(tool_id="react.write", params=params)

    written = view_parts.build_written_text(block_of(call), call, instance=0)

    assert written is None


def test_parameters_are_bounded_in_length_number_and_depth() -> None:
    deep: object = "bottom"
    for _ in range(20):
        deep = {"in": [deep]}

    bound = view_parts.bound_params({"s": "x" * 900, "l": list(range(99)), "content": "big", "deep": deep, "n": None})

    assert bound["s"] == "x" * 500
    assert len(bound["l"]) == 50
    assert "content" not in bound
    assert "bottom" not in str(bound)
    assert bound["n"] is None


def test_a_steer_block_has_the_receipt_of_an_applied_signal() -> None:
    body = SignalBody(signal_id=SignalId("sig_1"), text="Stop", attachments=(make_artifact(TURN, "a"),))

    view = view_parts.build_folded_signal(block_of(body, BlockType.USER_STEER), body, tenant="t", project="p")

    assert (view.kind, view.state, view.round, view.attachments[0].filename) == ("steer", "applied", 2, "a")


@pytest.mark.parametrize(("reaction", "expected"), [(Reaction.NOT_OK, "not_ok"), (None, None)])
def test_feedback_keeps_its_reaction_and_time(reaction: Reaction | None, expected: str | None) -> None:
    view = view_parts.build_feedback_view(Feedback(TURN, "user", reaction, "hm", BEGINNING))

    assert (view.reaction, view.ts) == (expected, "2026-01-02T03:04:05.000Z")
