"""The cards of models: costs by kind of token, long prompts, dated names, what overrides what, and honesty about what
is not known."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from chat_proc.models.cards import (
    UNKNOWN_CONTEXT_TOKENS,
    ModelCard,
    ModelCards,
    find_built_in,
    load_built_in,
    price_usage,
)
from chat_proc.models.providers import PROVIDERS
from chat_proc.models.roles import ModelChoice
from everturn.core.settings import BadConfig
from everturn.models.port import STAND_IN_PROVIDER, ModelTraits, ModelUsage, Price

ALL_KINDS = ModelUsage(
    input_tokens=1_000_000, output_tokens=100_000, cache_read_tokens=500_000, cache_write_tokens=100_000
)


def find_price(name: str) -> Price | None:
    card = find_built_in(name)
    assert card is not None
    return card.price


def priced(usage: ModelUsage, price: Price | None, *, provider: str = "openai") -> ModelUsage:
    return price_usage(usage, ModelTraits("m", 1_000, images=False, documents=False, provider=provider, price=price))


def find(own: dict[str, dict[str, Any]], name: str, *, reads_media: bool = False, **more: Any) -> ModelCard:
    """`name` is written as in EVERTURN_MODEL."""
    provider, _, plain = name.partition(":")
    cards = ModelCards({pattern: ModelCard.model_validate(card) for pattern, card in own.items()}, **more)
    return cards.find_card(ModelChoice(provider, plain, "test"), reads_media=reads_media)


def test_each_kind_of_token_has_its_price() -> None:
    usage = priced(ALL_KINDS, find_price("claude-sonnet-5-5"))

    assert usage.cost_usd == pytest.approx(0.4 * 2 + 0.5 * 0.1 + 0.1 * 2.5 + 0.1 * 10)
    assert usage.cost_known


def test_cached_tokens_without_a_price_cost_as_much_as_others() -> None:
    assert priced(ALL_KINDS, Price(input=2.0, output=10.0)).cost_usd == pytest.approx(2 + 0.1 * 10)


def test_a_long_prompt_costs_the_long_price_for_the_whole_call() -> None:
    price = find_price("claude-haiku-5-5")

    assert priced(ModelUsage(input_tokens=100_000), price).cost_usd == pytest.approx(0.01)
    assert priced(ModelUsage(input_tokens=100_001), price).cost_usd == pytest.approx(0.0500005)


def test_a_call_without_a_price_costs_nothing_and_says_that_this_is_not_known() -> None:
    usage = priced(ModelUsage(input_tokens=1_000, cost_usd=9.0), None)

    assert (usage.cost_usd, usage.cost_known) == (0.0, False)


def test_the_calls_of_a_stand_in_are_known_to_cost_nothing() -> None:
    usage = priced(ModelUsage(input_tokens=1_000), None, provider=STAND_IN_PROVIDER)

    assert (usage.cost_usd, usage.cost_known) == (0.0, True)


def test_a_dated_name_has_the_row_of_the_plain_one() -> None:
    assert find_built_in("claude-haiku-4-5-20251001") == find_built_in("claude-haiku-4-5")
    assert find_built_in("claude-haiku-4-5-large") is None


@pytest.mark.parametrize(
    "name",
    [
        "anthropic.claude-haiku-4-5-20251001-v1:0",
        "us.anthropic.claude-haiku-4-5-20251001-v1:0",
        "global.anthropic.claude-haiku-4-5",
        "us-gov.anthropic.claude-haiku-4-5-v1",
        "claude-haiku-4-5@20251001",
        "claude-haiku-4-5@default",
    ],
)
def test_the_names_of_clouds_have_the_row_of_the_plain_one(name: str) -> None:
    assert find_built_in(name) == find_built_in("claude-haiku-4-5")


def test_other_names_of_clouds_have_no_row() -> None:
    assert find_built_in("us.anthropic.claude-haiku-4-5-large-v1:0") is None
    assert find_built_in("meta.claude-haiku-4-5-v1:0") is None


def test_a_card_can_name_all_models_of_a_cloud() -> None:
    own = {"bedrock:*.claude-haiku-4-5-*": {"price": {"input": 1.1, "output": 5.5}}}

    card = find(own, "bedrock:us.anthropic.claude-haiku-4-5-20251001-v1:0")

    assert card.price is not None
    assert (card.price.input, card.context_tokens) == (1.1, 200_000)


def test_a_row_of_a_provider_overrides_that_of_the_model() -> None:
    chat, responses = (find({}, f"{provider}:gpt-6.1-terra") for provider in ("openai", "openai-responses"))

    assert responses == chat.model_copy(update={"abilities": chat.abilities | {"tool_call"}})


def test_the_default_models_are_in_the_table() -> None:
    assert {provider.default_model for provider in PROVIDERS.values()} <= {*load_built_in(), None}


def test_a_built_in_card_states_everything() -> None:
    with capture_logs() as logs:
        cards = [find({}, name if ":" in name else f"anthropic:{name}") for name in load_built_in()]

    assert [log["assumed"] for log in logs] == [[]] * len(cards)
    assert all(card.images and card.price and card.abilities and card.max_output_tokens for card in cards)


def test_a_model_without_a_card_gets_cautious_facts_that_are_logged() -> None:
    with capture_logs() as logs:
        card = find({}, "openai:mine")

    assert card == ModelCard()
    assert (card.context_tokens, card.images, card.abilities) == (UNKNOWN_CONTEXT_TOKENS, False, frozenset())
    (log,) = logs
    assert (log["log_level"], log["model"], log["context_tokens"]) == ("warning", "openai:mine", UNKNOWN_CONTEXT_TOKENS)
    assert log["assumed"] == ["abilities", "context_tokens", "documents", "images", "price"]


def test_the_log_names_only_what_no_card_states() -> None:
    own = {"mine": {"images": True, "documents": False, "price": "unknown", "abilities": ["json_mode"]}}

    with capture_logs() as logs:
        find(own, "local:mine")

    assert (logs[0]["assumed"], logs[0]["abilities"]) == (["context_tokens"], ["json_mode"])


def test_the_operators_card_overrides_the_built_in_one_field_by_field() -> None:
    card = find({"claude-haiku-4-5": {"context_tokens": 50_000, "price": "unknown"}}, "anthropic:claude-haiku-4-5")

    assert (card.context_tokens, card.price, card.documents) == (50_000, None, True)


def test_each_field_comes_from_the_most_specific_card_that_sets_it() -> None:
    own = {
        "*": {"context_tokens": 1, "max_output_tokens": 1, "images": True},
        "qwen*": {"context_tokens": 2, "max_output_tokens": 2},
        "qwen3:8b": {"context_tokens": 3},
        "local:qwen3:8b": {"abilities": ["tool_call"]},
    }

    card = find(own, "local:qwen3:8b")

    assert (card.context_tokens, card.max_output_tokens, card.images) == (3, 2, True)
    assert card.abilities == {"tool_call"}
    assert find(own, "other:qwen3:8b").abilities == frozenset()
    assert find(own, "other:qwen3:9b").context_tokens == 2


def test_a_card_can_be_for_all_models_of_an_endpoint() -> None:
    own = {"local:*": {"images": True}}

    assert (find(own, "local:a").images, find(own, "other:a").images) == (True, False)


def test_equally_specific_cards_of_one_model_are_an_error() -> None:
    own = {"qwen*": {"images": True}, "*3:8b": {"images": False}, "b*": {}}

    assert find(own, "local:qwen4").images
    with pytest.raises(
        BadConfig, match=r'"qwen\*"\] and \[models.cards."\*3:8b"\] are equally specific.*local:qwen3:8b'
    ):
        find({**own, "*3:8b*": {}, "qwen**": {}}, "local:qwen3:8b")


def test_media_are_assumed_only_if_no_card_says_otherwise() -> None:
    own = {"blind": {"images": False}}

    assert find(own, "openai:new", reads_media=True).images
    assert not find(own, "openai:blind", reads_media=True).images


def test_a_model_without_a_price_can_be_refused() -> None:
    own = {"priced": {"price": {"input": 0, "output": 0}}}

    assert find(own, "local:priced", unpriced="refuse").price == Price(input=0, output=0)
    assert find(own, "local:mine", unpriced="allow").price is None
    with pytest.raises(BadConfig, match=r'price of the model local:mine is unknown.*\[models.cards."mine"\]'):
        find(own, "local:mine", unpriced="refuse")


def test_a_model_without_a_price_can_get_assumed_prices() -> None:
    usual = Price(input=3, output=9)

    assert find({}, "local:mine", unpriced=usual).price == usual
    assert find({"mine": {"price": "unknown"}}, "local:mine", unpriced=usual).price == usual
    assert find({}, "anthropic:claude-haiku-4-5", unpriced=usual).price == find_price("claude-haiku-4-5")


def test_the_traits_of_a_model_are_those_of_its_card() -> None:
    card = ModelCard(max_output_tokens=100, abilities=frozenset({"json_schema"}), price=Price(input=1, output=2))

    traits = card.build_traits("mine", provider="openai", server_address="localhost")

    assert (traits.name, traits.provider, traits.server_address) == ("mine", "openai", "localhost")
    assert (traits.price, traits.abilities, traits.has_price) == (card.price, {"json_schema"}, True)
    assert (traits.limit_reply(99), traits.limit_reply(101)) == (99, 100)


def test_a_reply_leaves_half_of_a_small_context_to_the_request() -> None:
    traits = ModelCard(context_tokens=8_192).build_traits("mine", provider="openai", server_address="localhost")

    assert (traits.limit_reply(4_000), traits.limit_reply(8_192)) == (4_000, 4_096)
