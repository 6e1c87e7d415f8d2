"""The providers of language models, and which of their models the environment selects.

Models of the operator's endpoints are named and built like those of the providers whose protocol they speak.

The main model is `EVERTURN_MODEL`, otherwise that of the API key that is set, otherwise the offline demo.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from chat_proc.models.cards import ModelCards
from chat_proc.models.endpoints import FIRST_TOKEN_TIMEOUT_S, Endpoint, Server
from chat_proc.models.roles import EMBEDDING, OFFLINE, SCRIPTED, Listed, ModelChoice, RoleChoices
from everturn.core.errors import Invalid
from everturn.models.port import LanguageModel, ModelFailed

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Provider:
    """How to use the models of a provider.

    `keys` are secret variables, of which one must be set, the usual one first. `options` are further variables that its
    SDK reads. Both come with their meaning for operators. `required` are the options that must be set, too. If the SDK
    also finds credentials elsewhere, `try_explain` is called without a key and returns what to do if there are none.
    `default_model` runs if only a key is set; None if a model must be named. `build` returns the chosen model, and
    `ask_list` what its server's list says of it, on the provider's own server if there is no other. They import the
    adapter, because all SDKs together cost 2 s and 166 MB.
    """

    keys: Mapping[str, str]
    options: Mapping[str, str]
    default_model: str | None
    build: Callable[[ModelChoice, ModelCards, Server | None], LanguageModel]
    ask_list: Callable[[str, Server | None], Awaitable[Listed]]
    required: tuple[str, ...] = ()
    try_explain: Callable[[], str | None] | None = None


def _build_anthropic(choice: ModelChoice, cards: ModelCards, server: Server | None) -> LanguageModel:
    from chat_proc.models.anthropic import build_model

    return build_model(choice, cards, server)


async def _ask_anthropic(name: str, server: Server | None) -> Listed:
    from chat_proc.models.anthropic import ask_list

    return await ask_list(name, server)


def _build_openai(choice: ModelChoice, cards: ModelCards, server: Server | None) -> LanguageModel:
    from chat_proc.models.openai import build_model

    return build_model(choice, cards, server)


async def _ask_openai(name: str, server: Server | None) -> Listed:
    from chat_proc.models.openai import ask_list

    return await ask_list(name, server)


def _build_openai_responses(choice: ModelChoice, cards: ModelCards, server: Server | None) -> LanguageModel:
    from chat_proc.models.openai_responses import build_model

    return build_model(choice, cards, server)


def _build_azure(choice: ModelChoice, cards: ModelCards, _server: Server | None) -> LanguageModel:
    from chat_proc.models.azure import build_model

    return build_model(choice, cards)


def _build_bedrock(choice: ModelChoice, cards: ModelCards, _server: Server | None) -> LanguageModel:
    from chat_proc.models.anthropic_clouds import build_bedrock_model

    return build_bedrock_model(choice, cards)


def _try_explain_aws() -> str | None:
    from chat_proc.models.anthropic_clouds import has_aws_credentials

    if has_aws_credentials():
        return None
    return "Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role."


def _build_vertex(choice: ModelChoice, cards: ModelCards, _server: Server | None) -> LanguageModel:
    from chat_proc.models.anthropic_clouds import build_vertex_model

    return build_vertex_model(choice, cards)


def _try_explain_google() -> str | None:
    from chat_proc.models.anthropic_clouds import has_google_credentials

    if has_google_credentials():
        return None
    return "Set GOOGLE_APPLICATION_CREDENTIALS to the path of their file, or give the machine a service account."


async def _ask_nothing(_name: str, _server: Server | None) -> Listed:
    """For clouds, whose lists of models have no context lengths."""
    return Listed()


_OPENAI_KEYS: Final[Mapping[str, str]] = {
    "OPENAI_API_KEY": "API key for OpenAI's models (openai:<name> and openai-responses:<name>); any text if another "
    "server needs no key."
}
_OPENAI_OPTIONS: Final[Mapping[str, str]] = {
    "OPENAI_BASE_URL": "Base URL of another server with an OpenAI-compatible API, such as http://localhost:11434/v1."
}
_OTHER_SERVERS: Final = frozenset({"OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"})
"""The options that name a server of another kind than the provider's own."""
PROVIDERS: Final[Mapping[str, Provider]] = {
    "anthropic": Provider(
        keys={
            "ANTHROPIC_API_KEY": "API key for Anthropic's models (anthropic:<name>).",
            "ANTHROPIC_AUTH_TOKEN": "Token that is sent instead of ANTHROPIC_API_KEY.",
        },
        options={"ANTHROPIC_BASE_URL": "Another server with an Anthropic-compatible API."},
        default_model="claude-sonnet-5-5",
        build=_build_anthropic,
        ask_list=_ask_anthropic,
    ),
    "openai": Provider(
        keys=_OPENAI_KEYS,
        options=_OPENAI_OPTIONS,
        default_model="gpt-6.1-terra",
        build=_build_openai,
        ask_list=_ask_openai,
    ),
    "openai-responses": Provider(
        keys=_OPENAI_KEYS,
        options=_OPENAI_OPTIONS,
        default_model=None,
        build=_build_openai_responses,
        ask_list=_ask_openai,
    ),
    "azure": Provider(
        keys={
            "AZURE_OPENAI_API_KEY": "API key for deployments of Azure OpenAI (azure:<deployment>).",
            "AZURE_OPENAI_AD_TOKEN": "Token of Microsoft Entra ID that is sent instead of AZURE_OPENAI_API_KEY.",
        },
        options={
            "AZURE_OPENAI_ENDPOINT": "Address of the Azure resource, such as https://<resource>.openai.azure.com.",
            "OPENAI_API_VERSION": "Version of Azure's API, a date such as 2025-04-01-preview.",
        },
        required=("AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION"),
        default_model=None,
        build=_build_azure,
        ask_list=_ask_nothing,
    ),
    "bedrock": Provider(
        keys={
            "AWS_BEARER_TOKEN_BEDROCK": "API key for Anthropic's models on Amazon Bedrock (bedrock:<name>). Without "
            "it, AWS_ACCESS_KEY_ID, AWS_PROFILE or the role of the machine are used."
        },
        options={
            "AWS_REGION": "Region of Amazon Bedrock, such as us-east-1.",
            "ANTHROPIC_BEDROCK_BASE_URL": "Another address of Amazon Bedrock, such as that of a private endpoint.",
        },
        required=("AWS_REGION",),
        try_explain=_try_explain_aws,
        default_model=None,
        build=_build_bedrock,
        ask_list=_ask_nothing,
    ),
    "vertex": Provider(
        keys={},
        options={
            "ANTHROPIC_VERTEX_PROJECT_ID": "Google Cloud project for Anthropic's models on Vertex AI (vertex:<name>).",
            "CLOUD_ML_REGION": "Region of Vertex AI, such as us-east5 or global.",
            "GOOGLE_APPLICATION_CREDENTIALS": "Path of a file with credentials for Google Cloud. Without it, the "
            "service account of the machine is used.",
            "ANTHROPIC_VERTEX_BASE_URL": "Another address of Vertex AI, such as that of a private endpoint.",
        },
        required=("ANTHROPIC_VERTEX_PROJECT_ID", "CLOUD_ML_REGION"),
        try_explain=_try_explain_google,
        default_model=None,
        build=_build_vertex,
        ask_list=_ask_nothing,
    ),
}
"""By the prefix that names them in EVERTURN_MODEL; in order of preference, if keys of several are set."""
NO_ENDPOINTS: Final[Mapping[str, Endpoint]] = {}
_ENDPOINT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class BadModelSetting(Invalid):
    """A model setting is invalid."""


def check_endpoint_name(name: str) -> str:
    """Return the name of an endpoint. Raises ValueError if models can't be named after it."""
    if not _ENDPOINT_NAME.fullmatch(name):
        raise ValueError(
            "Name an endpoint with 1 to 40 characters of a-z, 0-9, _ and -, beginning with a letter or digit"
        )
    if name in {*PROVIDERS, OFFLINE, SCRIPTED}:
        raise ValueError(f"An endpoint can't be named {name}, which already has a meaning in names of models")
    return name


def choose_model(environment: Mapping[str, str], endpoints: Mapping[str, Endpoint] = NO_ENDPOINTS) -> ModelChoice:
    """The model for these variables; raises BadModelSetting with a sentence for the operator."""
    setting = environment.get("EVERTURN_MODEL", "").strip()
    if setting:
        return read_choice("EVERTURN_MODEL", setting, environment, endpoints)
    for prefix, provider in PROVIDERS.items():
        if provider.default_model and (key := _find_key(provider, environment)):
            return ModelChoice(prefix, provider.default_model, f"{key} is set")
    return ModelChoice(OFFLINE, OFFLINE, "neither an API key nor EVERTURN_MODEL is set")


def read_choice(
    key: str, setting: str, environment: Mapping[str, str], endpoints: Mapping[str, Endpoint]
) -> ModelChoice:
    """The model that `key` names with this text; raises BadModelSetting with a sentence for the operator."""
    why = f"{key}={setting}"
    if setting == OFFLINE:
        return ModelChoice(OFFLINE, OFFLINE, why)
    prefix, _, name = (part.strip() for part in setting.partition(":"))
    if prefix == SCRIPTED and not name:
        raise BadModelSetting(
            f"{key}: {setting!r} names no file. Write scripted:FILE with the path of a file of scripts."
        )
    if prefix == SCRIPTED and name:
        if environment.get("EVERTURN_MODE") != "development":
            raise BadModelSetting(f"{key}: A scripted model runs only with EVERTURN_MODE=development.")
        return ModelChoice(SCRIPTED, name, why)
    if name and (provider := PROVIDERS.get(prefix)):
        _check_variables(key, prefix, provider, environment)
        return ModelChoice(prefix, name, why)
    if name and (endpoint := endpoints.get(prefix)):
        if not endpoint.has_key(environment):
            raise BadModelSetting(
                f"{key} names a model of the endpoint {prefix}, but the variable in its `key_env`, {endpoint.key_env}, "
                "is not set. Set it, or remove `key_env` if the server needs no key."
            )
        return ModelChoice(prefix, name, why)
    unset = "" if environment.get("EVERTURN_CONFIG") else " (EVERTURN_CONFIG is not set)"
    wrong = f"no provider or endpoint is named {prefix!r}" if name else f"{setting!r} names no provider or endpoint"
    raise BadModelSetting(
        f"{key}: {wrong}. Write <provider>:<name>, <endpoint>:<name> or {OFFLINE}. "
        f"Endpoints in the configuration file: {', '.join(endpoints) or f'none{unset}'}. "
        f"Providers: {', '.join(PROVIDERS)}."
    )


def _check_variables(key: str, prefix: str, provider: Provider, environment: Mapping[str, str]) -> None:
    for name in provider.required:
        if not environment.get(name, "").strip():
            raise BadModelSetting(f"{key} names a model of {prefix}, but {name} is not set. Set it.")
    if _find_key(provider, environment) is not None:
        return
    if provider.try_explain is not None:
        if remedy := provider.try_explain():
            raise BadModelSetting(f"{key} names a model of {prefix}, but its credentials were not found. {remedy}")
        return
    keys = tuple(provider.keys)
    missing = f"{keys[0]} is not set" if len(keys) == 1 else f"neither {' nor '.join(keys)} is set"
    other = _find_base_url_name(provider)
    keyless = f"; if {other} is a server that needs no key, to any text" if other else ""
    raise BadModelSetting(f"{key} names a model of {prefix}, but {missing}. Set {keys[0]}{keyless}.")


def _find_base_url_name(provider: Provider) -> str | None:
    return next((name for name in provider.options if name in _OTHER_SERVERS), None)


def find_base_url(choice: ModelChoice, environment: Mapping[str, str], endpoints: Mapping[str, Endpoint]) -> str:
    """The address of the server that the operator names for a model; empty if it is the provider's own."""
    if endpoint := endpoints.get(choice.provider):
        return endpoint.base_url
    provider = PROVIDERS.get(choice.provider)
    return environment.get((provider and _find_base_url_name(provider)) or "", "").strip()


def _find_key(provider: Provider, environment: Mapping[str, str]) -> str | None:
    return next((key for key in provider.keys if environment.get(key, "").strip()), None)


def build_provider_model(
    choice: ModelChoice, cards: ModelCards, environment: Mapping[str, str], endpoints: Mapping[str, Endpoint]
) -> LanguageModel:
    """The chosen model of a provider or endpoint. Raises BadConfig if its card can't be used."""
    provider, server = _find_server(choice, environment, endpoints)
    return provider.build(choice, cards, server)


def try_find_first_token_timeout_s(
    choice: ModelChoice, environment: Mapping[str, str], endpoints: Mapping[str, Endpoint]
) -> float | None:
    """How long a server that the operator names may send nothing before the first token; None for a provider's own."""
    if endpoint := endpoints.get(choice.provider):
        return endpoint.first_token_timeout_s
    return FIRST_TOKEN_TIMEOUT_S if find_base_url(choice, environment, endpoints) else None


async def ask_lists(
    choices: Iterable[ModelChoice],
    cards: ModelCards,
    environment: Mapping[str, str],
    endpoints: Mapping[str, Endpoint],
) -> Mapping[str, Listed]:
    """What the lists of servers say of those of the models whose cards have no context length, by full name.

    Takes as long as the slowest server, bounded by `model_lists.ASK_LIMIT_S`. Raises BadConfig if the cards can't be
    used.
    """
    unknown = [c for c in choices if c.provider not in (OFFLINE, SCRIPTED) and not cards.has_context(c)]
    async with asyncio.TaskGroup() as group:
        asked = {
            choice.full_name: group.create_task(_ask(choice, *_find_server(choice, environment, endpoints)))
            for choice in unknown
        }
    return {name: task.result() for name, task in asked.items()}


async def _ask(choice: ModelChoice, provider: Provider, server: Server | None) -> Listed:
    """If the server can't be asked, this is logged."""
    try:
        return await provider.ask_list(choice.name, server)
    except ModelFailed as failure:
        _log.warning(
            "Could not ask for the context length of a model",
            model=choice.full_name,
            error=failure.detail,
            provider_text=failure.provider_text,
        )
        cause = " ".join((failure.provider_text or failure.detail).split())
        return Listed(problem=f"its server's list of models can't be read: {cause}")


def _find_server(
    choice: ModelChoice, environment: Mapping[str, str], endpoints: Mapping[str, Endpoint]
) -> tuple[Provider, Server | None]:
    """How a model is called; without a server, on that of the provider."""
    if endpoint := endpoints.get(choice.provider):
        return PROVIDERS[endpoint.protocol], endpoint.build_server(choice.provider, environment)
    return PROVIDERS[choice.provider], None


def choose_roles(
    environment: Mapping[str, str],
    roles: Mapping[str, str],
    fallback: str,
    endpoints: Mapping[str, Endpoint] = NO_ENDPOINTS,
) -> RoleChoices:
    """The models for these variables and the roles of the configuration file; raises BadModelSetting."""
    by_role = {
        role: read_choice(f"models.roles.{role}", setting, environment, endpoints)
        for role, setting in roles.items()
        if role != EMBEDDING
    }
    second = read_choice("EVERTURN_FALLBACK_MODEL", fallback, environment, endpoints) if fallback.strip() else None
    return RoleChoices(choose_model(environment, endpoints), by_role, second)
