"""Telemetry of every model call: a span by OpenTelemetry's conventions for generative AI, its duration, its usage and
its failure. It contains no text of the conversation."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal

from everturn.core.metrics import MODEL_CALL_SECONDS, MODEL_CALLS_FAILED
from everturn.core.tracing import Attributes, Span, Tracing
from everturn.models.port import FinishReason, ModelFailed, ModelRequest, ModelTraits, ModelUsage
from everturn.turns.model import UsageEvent

ModelRole = Literal["decision", "summary", "title"]
"""The purpose of a call, as named in the usage ledger."""


@contextmanager
def open_call(
    tracing: Tracing, traits: ModelTraits, request: ModelRequest, *, role: ModelRole, turn: Attributes
) -> Generator[Span]:
    """The span of one call, from its request to the end of its reply; `turn` is from `describe_turn`.

    A ModelFailed or TimeoutError that leaves the block counts as a failed call. A cancelled call does not: we ended it
    ourselves.
    """
    with (
        MODEL_CALL_SECONDS.labels(traits.ledger_name, role).time(),
        tracing.span(f"chat {traits.name}", _describe(traits, request, role, turn), kind="client") as span,
    ):
        try:
            yield span
        except (ModelFailed, TimeoutError) as failure:
            MODEL_CALLS_FAILED.labels(traits.ledger_name, role).inc()
            span.fail(failure.kind if isinstance(failure, ModelFailed) else "timeout")
            raise


def describe_turn(conversation_id: str, turn_id: str) -> Attributes:
    """Attributes that identify the turn."""
    return {"gen_ai.conversation.id": conversation_id, "everturn.turn.id": turn_id}


def describe_reply(reason: FinishReason, model: str | None, response_id: str | None) -> Attributes:
    """How a reply ended, and the provider's names of the model and the reply."""
    attributes: dict[str, str | Sequence[str]] = {"gen_ai.response.finish_reasons": [reason]}
    if model is not None:
        attributes["gen_ai.response.model"] = model
    if response_id is not None:
        attributes["gen_ai.response.id"] = response_id
    return attributes


def describe_usage(usage: UsageEvent) -> Attributes:
    """The usage of a call as attributes."""
    attributes: dict[str, str | int | float | bool] = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "everturn.usage.estimated": usage.estimated,
    }
    return {**attributes, "everturn.usage.cost_usd": usage.cost_usd} if usage.cost_known else attributes


def _describe(traits: ModelTraits, request: ModelRequest, role: ModelRole, turn: Attributes) -> Attributes:
    server = {"server.address": traits.server_address} if traits.server_address else {}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": traits.provider,
        "gen_ai.request.model": traits.name,
        "gen_ai.request.max_tokens": request.max_output_tokens,
        "everturn.model.role": role,
        **server,
        **turn,
    }


def build_usage_event(model: str, role: str, usage: ModelUsage) -> UsageEvent:
    """Build the entry; `role` is the purpose of the call."""
    return UsageEvent(
        model=model,
        role=role,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_usd=usage.cost_usd,
        estimated=usage.estimated,
        cost_known=usage.cost_known,
    )
