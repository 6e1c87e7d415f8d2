"""Which model runs: `EVERTURN_MODEL`, else by which key is there, else the offline model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from everturn.errors import Invalid

DEFAULT_ANTHROPIC_MODEL = "claude-sonnet-5-5"
DEFAULT_OPENAI_MODEL = "gpt-6.1-terra"
OFFLINE_NAME = "offline"

Provider = Literal["anthropic", "openai", "offline", "scripted"]

_KEYS: dict[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "openai": ("OPENAI_API_KEY",),
}
_FORMS = "'anthropic:<name>', 'openai:<name>' or 'offline'"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The chosen model and the sentence that says why. `name` is the file's path when the provider is `scripted`."""

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
    if _has_key("anthropic", environment):
        return ModelChoice("anthropic", DEFAULT_ANTHROPIC_MODEL, "an Anthropic key is set")
    if _has_key("openai", environment):
        return ModelChoice("openai", DEFAULT_OPENAI_MODEL, "OPENAI_API_KEY is set")
    return ModelChoice("offline", OFFLINE_NAME, "no key and no EVERTURN_MODEL are set")


def read_choice(key: str, setting: str, environment: Mapping[str, str]) -> ModelChoice:
    """The model that `key` names with this text; raises BadModelSetting with a sentence for the operator."""
    why = f"{key}={setting}"
    try:
        return _read_setting(setting, why, environment)
    except BadModelSetting as bad:
        raise BadModelSetting(f"{key}: {bad.detail}") from bad


def _read_setting(setting: str, why: str, environment: Mapping[str, str]) -> ModelChoice:
    provider, colon, name = (part.strip() for part in setting.partition(":"))
    match provider, bool(colon), name:
        case "offline", False, "":
            return ModelChoice("offline", OFFLINE_NAME, why)
        case "anthropic" | "openai", True, str(name) if name:
            _check_key(provider, environment)
            return ModelChoice(provider, name, why)
        case "scripted", True, str(path) if path:
            _check_development(environment)
            return ModelChoice("scripted", path, why)
        case _:
            raise BadModelSetting(f"It is {setting!r}; expected {_FORMS}.")


def _check_key(provider: str, environment: Mapping[str, str]) -> None:
    if not _has_key(provider, environment):
        names = " or ".join(_KEYS[provider])
        raise BadModelSetting(f"It names {provider}, but {names} is not set (a server without keys takes any value).")


def _check_development(environment: Mapping[str, str]) -> None:
    if environment.get("EVERTURN_MODE") != "development":
        raise BadModelSetting("A scripted model runs only with EVERTURN_MODE=development.")


def _has_key(provider: str, environment: Mapping[str, str]) -> bool:
    return any(environment.get(name, "").strip() for name in _KEYS[provider])
