"""A model call as a span tells of it, by OpenTelemetry's conventions for generative AI. Nothing of what is said."""

from everturn.model.commits import UsageEvent
from everturn.model.llm.prompts import ModelRequest
from everturn.ports.language_model import ModelTraits
from everturn.telemetry.tracing.spans import Attributes


def name_call(traits: ModelTraits) -> str:
    """The span's name: models are few, those that the operator configured."""
    return f"chat {traits.name}"


def describe_call(traits: ModelTraits, request: ModelRequest, *, role: str, turn: Attributes) -> Attributes:
    """What is asked of which model, and for what: `role` is the usage ledger's, `turn` is from `describe_turn`."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": traits.provider,
        "gen_ai.request.model": traits.name,
        "gen_ai.request.max_tokens": request.max_output_tokens,
        "everturn.model.role": role,
        **turn,
    }


def describe_turn(conversation_id: str, turn_id: str) -> Attributes:
    """Whose work it is."""
    return {"gen_ai.conversation.id": conversation_id, "everturn.turn.id": turn_id}


def describe_usage(usage: UsageEvent) -> Attributes:
    """What a call used."""
    told: dict[str, str | int | float | bool] = {
        "gen_ai.response.model": usage.model,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "everturn.usage.estimated": usage.estimated,
    }
    return {**told, "everturn.usage.cost_usd": usage.cost_usd} if usage.cost_known else told
