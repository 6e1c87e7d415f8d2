"""A turn's span is part of the trace of its request, and resumed work links the previous claim."""

from dataclasses import replace

import pytest
from helpers.recorded_spans import KeptTracing
from structlog.contextvars import get_contextvars

from chat_proc.agent.loop import HandedOver, Parked
from chat_proc.turn.leased import TurnEnd
from chat_proc.worker.runner import open_turn_span, record_outcome
from everturn.core.errors import problem
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.tracing import TraceContext, build_turn_context
from everturn.events.cursor import ORIGIN
from everturn.timeline.turns import Outcome, Turn, TurnRequest, TurnStatus
from everturn.turns.model import Claim, Lease
from everturn_testing.core import FixedClock

CALLER = TraceContext("a" * 32, "b" * 16)
CLAIM = Claim(
    lease=Lease(ConversationId("conv_1"), Principal("acme", "support", "ann"), "worker", 5),
    turn_id=TurnId("turn_1"),
    attempt=0,
    next_seq=1,
    last_hash="",
    cursor=ORIGIN,
    inbox_seq=0,
)
TURN = Turn(
    id=TurnId("turn_1"),
    conversation_id=ConversationId("conv_1"),
    ordinal=1,
    status=TurnStatus.RUNNING,
    attempt=0,
    request=TurnRequest("A secret question.", trace=str(CALLER)),
    created_at=FixedClock().now(),
)


def test_a_new_turn_is_a_child_span_of_its_request() -> None:
    tracing = KeptTracing()

    with open_turn_span(tracing, CLAIM, TURN, is_resumed=False):
        bound = get_contextvars()

    (span,) = tracing.spans
    assert span.name == "invoke_agent everturn"
    assert (span.parent, span.own, span.link) == (CALLER, build_turn_context("turn_1", 5, CALLER), None)
    assert span.attributes["gen_ai.conversation.id"] == "conv_1"
    assert "secret" not in str(span.attributes)
    assert bound["trace_id"] == CALLER.trace_id
    assert "trace_id" not in get_contextvars()


def test_resumed_work_is_linked_to_the_previous_claim() -> None:
    tracing = KeptTracing()

    with open_turn_span(tracing, replace(CLAIM, attempt=1), TURN, is_resumed=True):
        pass

    (span,) = tracing.spans
    assert span.link == build_turn_context("turn_1", 4, CALLER)
    assert span.attributes["everturn.turn.attempt"] == 1


@pytest.mark.parametrize(
    ("end", "outcome", "failed"),
    [
        (TurnEnd(Outcome.CAPPED), "capped", ""),
        (TurnEnd(None, problem("x", "X", 503, "")), "failed", "urn:everturn:problem:x"),
        (HandedOver(), "handed_over", ""),
        (Parked(), "parked", ""),
    ],
)
def test_the_span_says_how_far_the_turn_came(end: TurnEnd | HandedOver | Parked, outcome: str, failed: str) -> None:
    tracing = KeptTracing()

    with tracing.span("turn", {}) as open_span:
        record_outcome(open_span, end)

    (span,) = tracing.spans
    assert (span.attributes["everturn.turn.outcome"], span.failed) == (outcome, failed)
