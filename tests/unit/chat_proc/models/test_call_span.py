"""What a span tells of a model call, and what it does not."""

from dataclasses import replace

from chat_proc.models.call_span import describe_call, describe_turn, describe_usage, name_call
from chat_proc.models.usage import build_usage_event
from everturn.model.llm.prompts import ModelRequest, PromptMessage, TextPart
from everturn.ports.language_model import ModelTraits, ModelUsage

TRAITS = ModelTraits("heron-1", 100_000, images=False, documents=False, provider="acme")
REQUEST = ModelRequest((PromptMessage("user", (TextPart("A secret question."),)),), 500)


def test_a_call_is_named_after_its_model_and_tells_who_asks_for_what() -> None:
    told = describe_call(TRAITS, REQUEST, role="summary", turn=describe_turn("conv_1", "turn_1"))

    assert name_call(TRAITS) == "chat heron-1"
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "acme",
        "gen_ai.request.model": "heron-1",
        "gen_ai.request.max_tokens": 500,
        "gen_ai.conversation.id": "conv_1",
        "everturn.turn.id": "turn_1",
        "everturn.model.role": "summary",
    }


def test_cost_is_told_where_it_is_known() -> None:
    used = build_usage_event("heron-1", "summary", ModelUsage(input_tokens=7, output_tokens=3))

    known, unknown = (describe_usage(replace(used, cost_usd=0.5, cost_known=each)) for each in (True, False))

    assert known["gen_ai.usage.input_tokens"] == 7
    assert known["gen_ai.usage.output_tokens"] == 3
    assert known["everturn.usage.cost_usd"] == 0.5
    assert "everturn.usage.cost_usd" not in unknown
