"""A turn's work under one lease as a span, and what its log lines carry."""

from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Final

import structlog
from structlog.contextvars import bound_contextvars

from chat_proc.agent.loop import HandedOver, Parked
from chat_proc.agent.open_turn import TurnEnd
from chat_proc.turn.context import LeasedTurn
from everturn.model.leases import Claim
from everturn.model.turns import Turn
from everturn.telemetry.tracing.context import build_turn_context, try_parse_context
from everturn.telemetry.tracing.spans import Span, SpanPlace, Tracing

AGENT: Final = "everturn"
TurnLeft = TurnEnd | HandedOver | Parked
"""How work on a turn may stop in order."""

_log = structlog.get_logger(__name__)


@contextmanager
def open_turn_span(tracing: Tracing, claim: Claim, turn: Turn, *, is_resumed: bool) -> Generator[Span]:
    """The span of this claim: a child of the request, and where work goes on, linked to the claim before this one.

    Its ids follow from turn and fence, so that a worker that was killed need not have told of its span.
    """
    request = try_parse_context(turn.request.trace)
    own = build_turn_context(turn.id, claim.lease.fence, request)
    before = build_turn_context(turn.id, claim.lease.fence - 1, request) if is_resumed else None
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": AGENT,
        "gen_ai.conversation.id": turn.conversation_id,
        "everturn.turn.id": turn.id,
        "everturn.turn.attempt": claim.attempt,
        "everturn.tenant": claim.lease.principal.tenant,
    }
    place = SpanPlace(parent=request, own=own, link=before)
    with (
        tracing.span(f"invoke_agent {AGENT}", attributes, kind="internal", place=place) as span,
        bound_contextvars(trace_id=own.trace_id),
    ):
        yield span


async def run_in_span(
    tracing: Tracing, claim: Claim, turn: LeasedTurn, work: Coroutine[Any, Any, TurnLeft]
) -> TurnLeft:
    """The work, in a span and with a line in the log that both say how far it came."""
    is_resumed = bool(turn.turn_blocks) or claim.attempt > 0
    with open_turn_span(tracing, claim, turn.turn, is_resumed=is_resumed) as span:
        end = await work
        _log.info("turn_left", outcome=tell_end(span, end), attempt=claim.attempt)
        return end


def tell_end(span: Span, end: TurnLeft) -> str:
    """How far the turn has come, in a word."""
    match end:
        case HandedOver():
            outcome = "handed_over"
        case Parked():
            outcome = "waits_for_a_person"
        case TurnEnd(outcome=None, error=error):
            outcome = "failed"
            span.fail(error.type if error is not None else outcome)
        case TurnEnd(outcome=reached):
            outcome = str(reached)
    span.note({"everturn.turn.outcome": outcome})
    return outcome
