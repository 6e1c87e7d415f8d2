"""A model call as operators see it, whatever its purpose: a span by OpenTelemetry's conventions for generative AI,
its duration, its usage and its failure. It holds no text of the conversation."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal

from everturn.core.metrics import MODEL_CALL_SECONDS, MODEL_CALLS_FAILED
from everturn.core.tracing import Attributes, Span, Tracing
from everturn.models.port import FinishReason, ModelFailed, ModelRequest, ModelTraits, ModelUsage
from everturn.turns.commits import UsageEvent

ModelRole = Literal["decision", "summary", "title"]
"""What a call is for, as the usage ledger names it."""


@contextmanager
def open_call(
    tracing: Tracing, traits: ModelTraits, request: ModelRequest, *, role: ModelRole, turn: Attributes
) -> Generator[Span]:
    """The span of one call, from its request to the end of its reply; `turn` is from `describe_turn`.

    A ModelFailed or TimeoutError that leaves the block is a call that failed. One that is cancelled is none: it was
    we who wanted no more of it.
    """
    with (
        MODEL_CALL_SECONDS.labels(traits.name, role).time(),
        tracing.span(f"chat {traits.name}", _describe(traits, request, role, turn), kind="client") as span,
    ):
        try:
            yield span
        except (ModelFailed, TimeoutError) as failure:
            MODEL_CALLS_FAILED.labels(traits.name, role).inc()
            span.fail(failure.kind if isinstance(failure, ModelFailed) else "timeout")
            raise


def describe_turn(conversation_id: str, turn_id: str) -> Attributes:
    """Whose work it is."""
    return {"gen_ai.conversation.id": conversation_id, "everturn.turn.id": turn_id}


def describe_reply(reason: FinishReason, model: str | None, response_id: str | None) -> Attributes:
    """How a reply ended, and what its provider calls the model and the reply."""
    told: dict[str, str | Sequence[str]] = {"gen_ai.response.finish_reasons": [reason]}
    if model is not None:
        told["gen_ai.response.model"] = model
    if response_id is not None:
        told["gen_ai.response.id"] = response_id
    return told


def describe_usage(usage: UsageEvent) -> Attributes:
    """What a call used."""
    told: dict[str, str | int | float | bool] = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "everturn.usage.estimated": usage.estimated,
    }
    return {**told, "everturn.usage.cost_usd": usage.cost_usd} if usage.cost_known else told


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


# What a model call cost, as the ledger keeps it.


def build_usage_event(model: str, role: str, usage: ModelUsage) -> UsageEvent:
    """`role` says what the call was for."""
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
