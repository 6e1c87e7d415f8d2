"""Limits and list prices of models by name, from the dated table `models.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict

from everturn.models.port import STAND_IN_PROVIDER, ModelTraits, ModelUsage

UNKNOWN_CONTEXT_TOKENS = 128_000
"""Assumed for a model outside the table: the smallest context among chat models that are still sold."""


class Price(BaseModel):
    """USD per million tokens. `input` is for tokens that neither came from the cache nor went into it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float
    output: float
    cache_read: float
    cache_write: float


class ModelCard(BaseModel):
    """One row of the table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    context_tokens: int
    documents: bool
    adaptive_thinking: bool
    price: Price
    long_above: int | None = None
    long: Price | None = None


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    as_of: str
    models: dict[str, ModelCard]


def price_usage(usage: ModelUsage, name: str) -> ModelUsage:
    """`usage` with its cost filled in; an unknown model costs 0 with `cost_known` false."""
    card = find_card(name)
    if card is None:
        return replace(usage, cost_usd=0.0, cost_known=False)
    return replace(usage, cost_usd=_cost_usd(usage, _price_for(usage, card)), cost_known=True)


def has_price(traits: ModelTraits) -> bool:
    """Whether the cost of the model's calls is known. Stand-ins cost nothing."""
    return traits.provider == STAND_IN_PROVIDER or find_card(traits.name) is not None


def find_card(name: str) -> ModelCard | None:
    """The row of a model; a dated name (`claude-haiku-4-5-20251001`) uses the row of the undated one."""
    cards = load_cards()
    if name in cards:
        return cards[name]
    return next((card for known, card in cards.items() if _is_dated(name, known)), None)


def build_traits(name: str, *, provider: str, unknown_reads_media: bool) -> ModelTraits:
    """The capabilities of the model of this name. One outside the table may be a small local or a newer model."""
    card = find_card(name)
    if card is None:
        reads = unknown_reads_media
        return ModelTraits(name, UNKNOWN_CONTEXT_TOKENS, images=reads, documents=reads, provider=provider)
    return ModelTraits(name, card.context_tokens, images=True, documents=card.documents, provider=provider)


@cache
def load_cards() -> Mapping[str, ModelCard]:
    """The table by model name."""
    text = files("chat_proc.models").joinpath("models.toml").read_text(encoding="utf-8")
    return _Table.model_validate(tomllib.loads(text)).models


def _is_dated(name: str, known: str) -> bool:
    suffix = name.removeprefix(known)
    return suffix != name and suffix.startswith("-") and suffix.replace("-", "").isdecimal()


def _price_for(usage: ModelUsage, card: ModelCard) -> Price:
    if card.long is not None and card.long_above is not None and usage.input_tokens > card.long_above:
        return card.long
    return card.price


def _cost_usd(usage: ModelUsage, price: Price) -> float:
    plain = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    micro_usd = (
        plain * price.input
        + usage.cache_read_tokens * price.cache_read
        + usage.cache_write_tokens * price.cache_write
        + usage.output_tokens * price.output
    )
    return round(micro_usd / 1_000_000, 9)
