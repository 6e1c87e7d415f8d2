"""The attributes of the span of a model call, which calls count as failed, and what they cost."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from helpers.recorded_spans import KeptTracing
from prometheus_client import REGISTRY

from chat_proc.models.calls import CallTracker, ModelRole, build_usage_event, describe_turn, describe_usage, open_call
from chat_proc.models.retry import ModelRetryLimits, RetryingModel
from everturn.models.port import (
    ContextLimitExceeded,
    ModelFailed,
    ModelPiece,
    ModelRequest,
    ModelRetry,
    ModelTraits,
    ModelUsage,
    PromptMessage,
    ReasoningDelta,
    TextDelta,
    TextPart,
    ToolCallDelta,
)
from everturn_testing.models.scripted_model import Fail, Pause, Script, ScriptedModel

TRAITS = ModelTraits("heron-1", 100_000, images=False, documents=False, provider="acme")
REQUEST = ModelRequest((PromptMessage("user", (TextPart("A secret question."),)),), 500)
TURN = describe_turn("conv_1", "turn_1")
SILENT = [Pause(10)]
BUSY = [Fail(ModelFailed("busy", retryable=True, kind="timeout"))]


def count(kind: ModelRole) -> tuple[float, float]:
    """Calls of this kind that ended, and those of them that failed."""
    labels = {"model": TRAITS.name, "kind": kind}
    ended = REGISTRY.get_sample_value("everturn_model_call_seconds_count", labels)
    return ended or 0.0, REGISTRY.get_sample_value("everturn_model_calls_failed_total", labels) or 0.0


def test_a_call_span_has_the_model_name_and_the_role() -> None:
    tracing = KeptTracing()

    with open_call(tracing, TRAITS, REQUEST, role="summary", turn=TURN):
        pass

    (span,) = tracing.spans
    assert (span.name, span.kind, span.failed) == ("chat heron-1", "client", "")
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "acme",
        "gen_ai.request.model": "heron-1",
        "gen_ai.request.max_tokens": 500,
        "gen_ai.conversation.id": "conv_1",
        "everturn.turn.id": "turn_1",
        "everturn.model.role": "summary",
    }


def test_a_known_cost_is_an_attribute() -> None:
    used = build_usage_event("heron-1", "summary", ModelUsage(input_tokens=7, output_tokens=3))

    known, unknown = (describe_usage(replace(used, cost_usd=0.5, cost_known=each)) for each in (True, False))

    assert known["gen_ai.usage.input_tokens"] == 7
    assert known["gen_ai.usage.output_tokens"] == 3
    assert known["everturn.usage.cost_usd"] == 0.5
    assert "everturn.usage.cost_usd" not in unknown


def test_every_call_is_timed_once_by_its_kind() -> None:
    decisions, titles = count("decision"), count("title")

    with open_call(KeptTracing(), TRAITS, REQUEST, role="title", turn=TURN):
        pass

    assert count("decision") == decisions
    assert count("title") == (titles[0] + 1, titles[1])


@pytest.mark.parametrize(
    ("error", "is_counted"),
    [
        (ModelFailed("down"), True),
        (ContextLimitExceeded(), True),
        (TimeoutError(), True),
        (asyncio.CancelledError(), False),
    ],
)
@pytest.mark.parametrize("role", ["decision", "summary", "title"])
def test_an_incomplete_reply_is_a_failure_and_a_cancellation_is_not(
    role: ModelRole, error: BaseException, is_counted: bool
) -> None:
    tracing, (ended, failed) = KeptTracing(), count(role)

    with pytest.raises(type(error)), open_call(tracing, TRAITS, REQUEST, role=role, turn=TURN):
        raise error

    assert count(role) == (ended + 1, failed + is_counted)
    assert tracing.spans[0].failed == type(error).__name__


@pytest.mark.parametrize(
    ("piece", "error", "output_tokens"),
    [
        (None, ModelFailed("down"), []),
        (TextDelta("x" * 35), ModelFailed("cut"), [10]),
        (ReasoningDelta("x" * 35), ModelFailed("cut"), [10]),
        (ToolCallDelta(0, "x" * 31, "echo"), ModelFailed("cut"), [10]),
        (None, TimeoutError(), [0]),
        (None, asyncio.CancelledError(), [0]),
    ],
)
def test_a_failed_call_costs_what_it_sent_and_one_that_we_ended_its_input(
    piece: ModelPiece | None, error: BaseException, output_tokens: list[int]
) -> None:
    tracing = KeptTracing()
    tracker = CallTracker(TRAITS, "summary", tracing=tracing)

    with pytest.raises(type(error)), tracker.open_call(REQUEST) as call:
        if piece is not None:
            call.note(piece)
        raise error

    events = tracker.build_events()
    assert [(event.input_tokens, event.output_tokens) for event in events] == [(6, each) for each in output_tokens]
    assert all(event.estimated for event in events)
    assert tracing.spans[0].attributes.get("everturn.usage.estimated", False) == bool(output_tokens)


@pytest.mark.parametrize(("waited_s", "entries"), [(0.0, 1), (1.9, 1), (2.1, 2)])
def test_an_attempt_that_was_not_sent_yet_costs_nothing(waited_s: float, entries: int) -> None:
    now_s = 10.0
    tracker = CallTracker(TRAITS, "summary", monotonic=lambda: now_s)

    with pytest.raises(TimeoutError), tracker.open_call(REQUEST) as call:
        call.note(ModelRetry(2.0, 2, 3, "timeout", abandoned=True))
        now_s += waited_s
        running = tracker.build_events()
        raise TimeoutError

    now_s += 60
    assert len(running) == entries
    assert len(tracker.build_events()) == entries


@pytest.mark.parametrize(
    ("scripts", "tokens"),
    [
        ([SILENT, SILENT, "Hello."], [(6, 0, True), (6, 0, True), (100, 20, False)]),
        ([SILENT, BUSY, "Hello."], [(6, 0, True), (100, 20, False)]),
        ([SILENT, BUSY, SILENT], [(6, 0, True)] * 2),
        ([BUSY, SILENT, BUSY], [(6, 0, True)]),
    ],
)
async def test_each_attempt_that_our_time_limit_ended_costs_its_input(
    scripts: list[Script], tokens: list[tuple[int, int, bool]]
) -> None:
    limits = ModelRetryLimits(first_token_timeout_s=0.1, first_backoff_s=0.0, max_timeouts=3)
    model = RetryingModel(ScriptedModel(scripts), limits=limits)
    tracing = KeptTracing()
    tracker = CallTracker(model.traits, "summary", tracing=tracing)

    with suppress(ModelFailed), tracker.open_call(REQUEST) as call:
        async for piece in model.generate(REQUEST):
            call.note(piece)

    events = tracker.build_events()
    assert [(event.input_tokens, event.output_tokens, event.estimated) for event in events] == tokens
    assert tracing.spans[0].attributes["gen_ai.usage.input_tokens"] == sum(tokens_in for tokens_in, _, _ in tokens)
