"""The table of models: costs by kind of token, long prompts, dated names, and honesty about what it does not know."""

import pytest

from chat_proc.models.pricing import UNKNOWN_CONTEXT_TOKENS, build_traits, find_card, has_price, load_cards, price_usage
from chat_proc.models.providers import PROVIDERS
from everturn.models.port import ModelTraits, ModelUsage


def test_each_kind_of_token_has_its_price() -> None:
    usage = ModelUsage(
        input_tokens=1_000_000, output_tokens=100_000, cache_read_tokens=500_000, cache_write_tokens=100_000
    )

    priced = price_usage(usage, "claude-sonnet-5-5")

    assert priced.cost_usd == pytest.approx(0.4 * 2 + 0.5 * 0.1 + 0.1 * 2.5 + 0.1 * 10)
    assert priced.cost_known


def test_a_long_prompt_costs_the_long_price_for_the_whole_call() -> None:
    short = price_usage(ModelUsage(input_tokens=100_000), "claude-haiku-5-5")
    long = price_usage(ModelUsage(input_tokens=100_001), "claude-haiku-5-5")

    assert short.cost_usd == pytest.approx(0.01)
    assert long.cost_usd == pytest.approx(0.0500005)


def test_an_unknown_model_costs_nothing_and_says_that_this_is_not_known() -> None:
    priced = price_usage(ModelUsage(input_tokens=1_000, cost_usd=9.0), "my-local-model")

    assert (priced.cost_usd, priced.cost_known) == (0.0, False)


def test_only_a_stand_in_costs_nothing_without_a_price() -> None:
    assert has_price(ModelTraits("demo", 1_000, images=False, documents=False))
    assert has_price(build_traits("claude-haiku-4-5", provider="anthropic", unknown_reads_media=True))
    assert not has_price(build_traits("my-local-model", provider="acme", unknown_reads_media=True))


def test_a_dated_name_has_the_row_of_the_plain_one() -> None:
    assert find_card("claude-haiku-4-5-20251001") == find_card("claude-haiku-4-5")
    assert find_card("claude-haiku-4-5-large") is None


def test_the_default_models_are_in_the_table() -> None:
    assert {provider.default_model for provider in PROVIDERS.values()} <= set(load_cards())


def test_an_unknown_model_gets_cautious_traits() -> None:
    traits = build_traits("my-local-model", provider="openai", unknown_reads_media=False)

    assert (traits.context_tokens, traits.images, traits.documents) == (UNKNOWN_CONTEXT_TOKENS, False, False)
