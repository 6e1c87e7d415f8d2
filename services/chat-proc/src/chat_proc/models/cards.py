"""Model cards: the limits, abilities and price of each model.

A fact comes from the operator's cards (`models.cards` in the configuration file), otherwise from the built-in table
`models.toml`, otherwise, if it is the context length, from the model's server, otherwise from a cautious default.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Annotated, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from chat_proc.models.roles import Listed, ModelChoice
from everturn.core.settings import BadConfig
from everturn.models.port import Ability, ModelTraits, ModelUsage, Price, TokenPrices

_log = structlog.get_logger(__name__)

UNKNOWN_CONTEXT_TOKENS = 128_000
"""Assumed if neither a card nor the server says it: the smallest context among chat models that are still sold."""

_ASSUMED = frozenset({"context_tokens", "images", "documents", "abilities", "price"})
"""The fields whose defaults can be wrong for a model."""
_BEDROCK_NAME = re.compile(r"(?:[a-z-]+\.)?anthropic\.(.+?)(?:-v\d+(?::\d+)?)?")
_VERTEX_NAME = re.compile(r"(claude-.+)@\w+")
_WILDCARD = re.compile(r"\[[^]]+\]|[*?]")


class ModelCard(BaseModel):
    """Facts about a model. The defaults are for a model of which nothing is known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    context_tokens: int = Field(default=UNKNOWN_CONTEXT_TOKENS, gt=0)
    max_output_tokens: int | None = Field(default=None, gt=0)
    images: bool = False
    documents: bool = False
    abilities: frozenset[Ability] = frozenset()
    adaptive_thinking: bool = False
    """Whether Anthropic's API accepts `thinking` of the type `adaptive`."""
    price: Price | None = None
    """None if it is unknown, written as "unknown"."""

    @model_validator(mode="before")
    @classmethod
    def _check_tables(cls, fields: dict[str, object]) -> dict[str, object]:
        # [models.cards.qwen2.5] is the table 5 in the table qwen2.
        for key, value in fields.items():
            if isinstance(value, dict) and key not in cls.model_fields:
                raise ValueError(
                    f'Unknown table {key}. Write a name that contains a dot in quotes: [models.cards."qwen2.5"]'
                )
        return fields

    @field_validator("price", mode="before")
    @classmethod
    def _read_price(cls, value: object) -> object:
        if value == "unknown":
            return None
        if isinstance(value, str | float | int | list):
            raise ValueError('Write prices such as { input = 1.0, output = 5.0 }, or "unknown"')
        return value

    def build_traits(self, name: str, *, provider: str, server_address: str, endpoint: str = "") -> ModelTraits:
        """The traits of the model with this card."""
        return ModelTraits(
            name,
            self.context_tokens,
            context_assumed="context_tokens" not in self.model_fields_set,
            images=self.images,
            documents=self.documents,
            provider=provider,
            server_address=server_address,
            endpoint=endpoint,
            max_output_tokens=self.max_output_tokens,
            abilities=self.abilities,
            price=self.price,
        )


def _tag_unpriced(value: object) -> str | None:
    if isinstance(value, Mapping | TokenPrices):
        return "[prices]"
    return "[policy]" if value in ("refuse", "allow") else None


Unpriced = Annotated[
    Annotated[Literal["refuse", "allow"], Tag("[policy]")] | Annotated[Price, Tag("[prices]")],
    Discriminator(
        _tag_unpriced,
        custom_error_type="unpriced",
        custom_error_message='Write "refuse", "allow" or prices such as { input = 1.0, output = 5.0 }',
    ),
]
"""What to do with a model whose price is unknown: reject it, accept it without a known cost, or assume these prices."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    as_of: str
    models: dict[str, ModelCard]


@dataclass(frozen=True, slots=True)
class ModelCards:
    """The operator's cards by name or glob, over the built-in ones.

    `listed` is what servers say of the models whose cards have no context length, by full name.
    """

    own: Mapping[str, ModelCard] = field(default_factory=dict[str, ModelCard])
    unpriced: Literal["refuse", "allow"] | Price = "allow"
    listed: Mapping[str, Listed] = field(default_factory=dict[str, Listed])

    def has_context(self, choice: ModelChoice) -> bool:
        """Whether a card says how long the context of a model is. Raises BadConfig like `find_card`."""
        return "context_tokens" in self._merge(choice)

    def find_card(self, choice: ModelChoice, *, reads_media: bool) -> ModelCard:
        """The complete card of a model, which is logged. Each field comes from the most specific card that sets it.

        `reads_media` is assumed for images and documents if no card sets them. Raises BadConfig if two of the
        operator's cards are equally specific, or if a price is required and missing.
        """
        known = self._merge(choice)
        if tokens := self.listed.get(choice.full_name, Listed()).context_tokens:
            known.setdefault("context_tokens", tokens)
        if known.get("price") is None and isinstance(self.unpriced, Price):
            known["price"] = self.unpriced
        found = ModelCard.model_validate({"images": reads_media, "documents": reads_media, **known})
        if found.price is None and self.unpriced == "refuse":
            raise BadConfig(
                f'The price of the model {choice.full_name} is unknown, and models.unpriced is "refuse". '
                f'Set `price` in [models.cards."{choice.name}"].'
            )
        assumed = sorted(_ASSUMED - known.keys())
        log = _log.warning if assumed else _log.info
        log("Loaded a model card", model=choice.full_name, assumed=assumed, **found.model_dump(mode="json"))
        return found

    def _merge(self, choice: ModelChoice) -> dict[str, object]:
        """The fields that the cards of a model set."""
        cards = (find_built_in(choice.name), find_built_in(choice.full_name), *self._find_own(choice))
        return {name: getattr(card, name) for card in cards if card is not None for name in card.model_fields_set}

    def _find_own(self, choice: ModelChoice) -> list[ModelCard]:
        """The operator's cards for a model, the most specific last."""
        names = choice.name, choice.full_name
        found = [pattern for pattern in self.own if any(fnmatchcase(name, pattern) for name in names)]
        found.sort(key=_measure_specificity)
        for one, other in pairwise(found):
            if _measure_specificity(one) == _measure_specificity(other):
                raise BadConfig(
                    f'The cards [models.cards."{one}"] and [models.cards."{other}"] are equally specific for the model '
                    f"{choice.full_name}. Remove one of them, or make its name longer."
                )
        return [self.own[pattern] for pattern in found]


def _measure_specificity(pattern: str) -> tuple[bool, int]:
    """A name is more specific than a glob; otherwise the number of literal characters decides."""
    literal = _WILDCARD.sub("", pattern)
    return literal == pattern, len(literal)


def price_usage(usage: ModelUsage, traits: ModelTraits) -> ModelUsage:
    """`usage` of a model with its cost filled in; 0 if the model has no price, with `cost_known` as in `has_price`."""
    price = traits.price
    if price is None:
        return replace(usage, cost_usd=0.0, cost_known=traits.has_price)
    prices: TokenPrices = price
    if price.long is not None and price.long_above is not None and usage.input_tokens > price.long_above:
        prices = price.long
    return replace(usage, cost_usd=_cost_usd(usage, prices), cost_known=True)


def find_built_in(name: str) -> ModelCard | None:
    """The row of a model; a dated name (`claude-haiku-4-5-20251001`) uses the row of the undated one, and so do the
    names on Bedrock (`us.anthropic.claude-haiku-4-5-20251001-v1:0`) and Vertex AI (`claude-haiku-4-5@20251001`)."""
    cards = load_built_in()
    if (found := _BEDROCK_NAME.fullmatch(name) or _VERTEX_NAME.fullmatch(name)) is not None:
        name = found[1]
    if name in cards:
        return cards[name]
    return next((card for known, card in cards.items() if _is_dated(name, known)), None)


@cache
def load_built_in() -> Mapping[str, ModelCard]:
    """The table by model name."""
    text = files("chat_proc.models").joinpath("models.toml").read_text(encoding="utf-8")
    return _Table.model_validate(tomllib.loads(text)).models


def _is_dated(name: str, known: str) -> bool:
    suffix = name.removeprefix(known)
    return suffix != name and suffix.startswith("-") and suffix.replace("-", "").isdecimal()


def _cost_usd(usage: ModelUsage, prices: TokenPrices) -> float:
    plain = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    micro_usd = (
        plain * prices.input
        + usage.cache_read_tokens * (prices.input if prices.cache_read is None else prices.cache_read)
        + usage.cache_write_tokens * (prices.input if prices.cache_write is None else prices.cache_write)
        + usage.output_tokens * prices.output
    )
    return round(micro_usd / 1_000_000, 9)
