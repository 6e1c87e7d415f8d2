"""Chooses and builds the models that operator and bundles name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from chat_proc.bundles.manifest import Manifest
from chat_proc.models.cards import ModelCards
from chat_proc.models.endpoints import Endpoint
from chat_proc.models.providers import (
    ask_lists,
    build_provider_model,
    choose_roles,
    read_choice,
    try_find_first_token_timeout_s,
)
from chat_proc.models.retry import ModelRetryLimits, RetryingModel
from chat_proc.models.roles import (
    DECISION,
    OFFLINE,
    SCRIPTED,
    ModelChoice,
    ModelRoles,
)
from chat_proc.settings import (
    ModelSettings,
    OperatorConfig,
)
from everturn.core.errors import Invalid
from everturn.models.port import LanguageModel

MODEL_RETRIES = ModelRetryLimits()
"""For each call of a model, and for the replies of a round."""


CHECK_RETRIES = ModelRetryLimits(max_attempts=3, max_timeouts=1, max_likely_permanent=1, window_s=20.0, budget_s=40.0)
"""While an operator waits for the check of a model: enough for a rate limit, but a failure shows soon."""


class NothingToCheck(Invalid):
    """There is nothing to check."""


async def choose_models(settings: ModelSettings, config: OperatorConfig) -> ModelRoles:
    """The models by role; each is built on first use, but servers are asked now for what no card says.

    Raises BadModelSetting, BadConfig.
    """
    environment, endpoints = settings.model_environment, config.models.endpoints
    roles = dict[str, str](config.models.roles.items())
    choices = choose_roles(environment, roles, settings.fallback_model, endpoints)
    cards = await ask_cards(choices.used, config, environment)
    build = partial(build_model, cards=cards, environment=environment, endpoints=endpoints)
    return ModelRoles(choices, build, cards.listed)


async def choose_checked_model(
    settings: ModelSettings, config: OperatorConfig, name: str
) -> tuple[ModelChoice, LanguageModel]:
    """The model to check, named as in EVERTURN_MODEL; without a name that of the role `decision`. No other role needs
    its model for this. Raises BadModelSetting, BadConfig, NothingToCheck."""
    environment, endpoints = settings.model_environment, config.models.endpoints
    if name:
        choice = read_choice("The argument NAME", name, environment, endpoints)
    else:
        roles = {role: model for role, model in config.models.roles.items() if role == DECISION}
        choice = choose_roles(environment, dict[str, str](roles), "", endpoints).find(DECISION)
    if choice.provider in (OFFLINE, SCRIPTED):
        what = "the built-in demo" if choice.provider == OFFLINE else "a script"
        why = "" if name else f" ({choice.why})"
        raise NothingToCheck(
            f"{choice.full_name} is {what}, which can't be checked{why}. Name a model, such as openai:<name>, or set "
            "EVERTURN_MODEL."
        )
    cards = await ask_cards((choice,), config, environment)
    return choice, build_model(choice, cards, environment, endpoints, CHECK_RETRIES)


async def ask_cards(
    choices: Sequence[ModelChoice], config: OperatorConfig, environment: Mapping[str, str]
) -> ModelCards:
    """The cards of the operator, with what servers state about the chosen models. Raises BadConfig."""
    cards = ModelCards(config.models.cards, config.models.unpriced)
    return replace(cards, listed=await ask_lists(choices, cards, environment, config.models.endpoints))


def build_model(
    choice: ModelChoice,
    cards: ModelCards,
    environment: Mapping[str, str],
    endpoints: Mapping[str, Endpoint],
    retries: ModelRetryLimits = MODEL_RETRIES,
) -> LanguageModel:
    """The chosen model with retries. Raises BadConfig if the configuration of the model can't be used."""
    if choice.provider == OFFLINE:
        from chat_proc.demo.model import build_model as build_demo

        model = build_demo(choice.name)
    elif choice.provider == SCRIPTED:
        from everturn_testing.models.scripted_file import build_model as build_scripted

        model = build_scripted(choice.name)
    else:
        model = build_provider_model(choice, cards, environment, endpoints)
        if limit_s := try_find_first_token_timeout_s(choice, environment, endpoints):
            retries = replace(retries, first_token_timeout_s=limit_s)
    return RetryingModel(model, limits=retries)


async def choose_models_of(
    manifest: Manifest, settings: ModelSettings, config: OperatorConfig, usual: ModelRoles
) -> ModelRoles:
    """The models by role for a bundle: the `usual` ones, unless it names others. Raises BadModelSetting, BadConfig."""
    if not manifest.models:
        return usual
    roles = {**config.models.roles, **manifest.models}
    named = config.models.model_copy(update={"roles": roles})
    return await choose_models(settings, config.model_copy(update={"models": named}))
