"""Which model serves which role, and which providers and models the environment offers. The main model is
`EVERTURN_MODEL`, otherwise that of the API key that is set, otherwise the offline demo."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from everturn.core.errors import Invalid
from everturn.models.port import LanguageModel, ModelTraits

Provider = Literal["anthropic", "openai", "offline", "scripted"]
OFFLINE_NAME = "offline"

DECISION: Final = "decision"
SUMMARY: Final = "summary"
TITLE: Final = "title"
EMBEDDING: Final = "embedding"
"""Not a language model: it names an encoder, in the forms of EMBEDDER."""


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """What the environment must hold to use a provider: one of the variables `keys`. `default_model` runs if only a key
    is set."""

    keys: tuple[str, ...]
    default_model: str


PROVIDERS: Final[Mapping[Provider, ProviderAccess]] = {
    "anthropic": ProviderAccess(("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "claude-sonnet-5-5"),
    "openai": ProviderAccess(("OPENAI_API_KEY",), "gpt-6.1-terra"),
}
"""In order of preference, if keys of several are set."""
_FORMS = ", ".join(f"'{provider}:<name>'" for provider in PROVIDERS) + " or 'offline'"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The chosen model and the reason as a sentence. `name` is a file path if the provider is `scripted`."""

    provider: Provider
    name: str
    why: str


class BadModelSetting(Invalid):
    """The setting of a model can't be used."""


def choose_model(environment: Mapping[str, str]) -> ModelChoice:
    """The model for these variables; raises BadModelSetting with a sentence for the operator."""
    setting = environment.get("EVERTURN_MODEL", "").strip()
    if setting:
        return read_choice("EVERTURN_MODEL", setting, environment)
    for provider, access in PROVIDERS.items():
        if key := _find_key(access, environment):
            return ModelChoice(provider, access.default_model, f"{key} is set")
    return ModelChoice("offline", OFFLINE_NAME, "no key and no EVERTURN_MODEL are set")


def read_choice(key: str, setting: str, environment: Mapping[str, str]) -> ModelChoice:
    """The model that `key` names with this text; raises BadModelSetting with a sentence for the operator."""
    why = f"{key}={setting}"
    try:
        return _read_setting(setting, why, environment)
    except BadModelSetting as bad:
        raise BadModelSetting(f"{key}: {bad.detail}") from bad


def _read_setting(setting: str, why: str, environment: Mapping[str, str]) -> ModelChoice:
    if setting == OFFLINE_NAME:
        return ModelChoice("offline", OFFLINE_NAME, why)
    prefix, _, name = (part.strip() for part in setting.partition(":"))
    if prefix == "scripted" and name:
        _check_development(environment)
        return ModelChoice("scripted", name, why)
    for provider, access in PROVIDERS.items():
        if prefix == provider and name:
            _check_key(provider, access, environment)
            return ModelChoice(provider, name, why)
    raise BadModelSetting(f"It is {setting!r}; expected {_FORMS}.")


def _check_key(provider: Provider, access: ProviderAccess, environment: Mapping[str, str]) -> None:
    if _find_key(access, environment) is None:
        names = " or ".join(access.keys)
        raise BadModelSetting(f"It names {provider}, but {names} is not set (a server without keys accepts any value).")


def _check_development(environment: Mapping[str, str]) -> None:
    if environment.get("EVERTURN_MODE") != "development":
        raise BadModelSetting("A scripted model runs only with EVERTURN_MODE=development.")


def _find_key(access: ProviderAccess, environment: Mapping[str, str]) -> str | None:
    return next((key for key in access.keys if environment.get(key, "").strip()), None)


class ModelRoles:
    """Builds models on first use; roles with the same choice share one model.

    `by_role` has the roles for which the operator configured a model.
    """

    def __init__(
        self,
        default: ModelChoice,
        build: Callable[[ModelChoice], LanguageModel],
        *,
        by_role: Mapping[str, ModelChoice] | None = None,
        fallback: ModelChoice | None = None,
    ) -> None:
        self._default = default
        self._build = build
        self._by_role = by_role or {}
        self._fallback = fallback
        self._built: dict[tuple[str, str], LanguageModel] = {}

    def choice(self, role: str) -> ModelChoice:
        """The configured model for the role, otherwise the default."""
        return self._by_role.get(role, self._default)

    def model(self, role: str) -> LanguageModel:
        """The model of a required role."""
        return self._model(self.choice(role))

    def try_model(self, role: str) -> LanguageModel | None:
        """The model of an optional role; None if only a stand-in is available, which writes no text of its own.

        A scripted model serves such a role only if it is configured for it.
        """
        choice = self.choice(role)
        if choice.provider == "offline" or (choice.provider == "scripted" and role not in self._by_role):
            return None
        return self._model(choice)

    @property
    def fallback(self) -> LanguageModel | None:
        """The model that decides if the deciding model has failed."""
        return None if self._fallback is None else self._model(self._fallback)

    def _model(self, choice: ModelChoice) -> LanguageModel:
        key = (choice.provider, choice.name)
        if key not in self._built:
            self._built[key] = self._build(choice)
        return self._built[key]


def choose_roles(
    environment: Mapping[str, str],
    roles: Mapping[str, str],
    fallback: str,
    build: Callable[[ModelChoice], LanguageModel],
) -> ModelRoles:
    """The models for these variables and the roles of the configuration file; raises BadModelSetting."""
    by_role = {
        role: read_choice(f"models.roles.{role}", setting, environment)
        for role, setting in roles.items()
        if role != EMBEDDING
    }
    second = read_choice("EVERTURN_FALLBACK_MODEL", fallback, environment) if fallback.strip() else None
    return ModelRoles(choose_model(environment), build, by_role=by_role, fallback=second)


def narrow_traits(model: LanguageModel, fallback: LanguageModel | None) -> ModelTraits:
    """The model's traits, narrowed to what its fallback also supports: a request must suit both."""
    first, second = model.traits, (fallback or model).traits
    return ModelTraits(
        name=first.name,
        context_tokens=min(first.context_tokens, second.context_tokens),
        images=first.images and second.images,
        documents=first.documents and second.documents,
        provider=first.provider,
        server_address=first.server_address,
    )
