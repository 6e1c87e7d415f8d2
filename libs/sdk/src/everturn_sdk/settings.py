"""The settings and secrets of the bundle whose code this process runs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

_OWN = "b:"
_settings: Mapping[str, Any] = MappingProxyType({})
_secrets: Mapping[str, str] = MappingProxyType({})
_MISSING = object()


class MissingSetting(LookupError):
    """The bundle has no such setting or secret."""


def get_settings() -> Mapping[str, Any]:
    """The settings of the bundle: its `[settings]` with the operator's overrides."""
    return _settings


def get_plain(path: str, default: object = _MISSING) -> Any:
    """A setting by its path, such as `"search.limit"` or `"b:search.limit"`. Without a `default`, raises
    MissingSetting if there is none."""
    found: object = _settings
    for name in path.removeprefix(_OWN).split("."):
        if not isinstance(found, Mapping) or name not in found:
            if default is _MISSING:
                raise MissingSetting(f"This agent has no setting {path!r}. Add it to [settings] of bundle.toml.")
            return default
        found = cast("Mapping[str, object]", found)[name]
    return found


def get_secret(name: str) -> str:
    """A secret of the bundle, such as `"b:api_key"`. Raises MissingSetting if the operator has not set it."""
    if not name.startswith(_OWN):
        raise MissingSetting(f"{name!r} is not a secret of this agent; their names begin with {_OWN!r}.")
    if name.removeprefix(_OWN) not in _secrets:
        raise MissingSetting(f"This agent has no secret {name!r}. An operator sets it.")
    return _secrets[name.removeprefix(_OWN)]


def use_settings(settings: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
    """Called once by the host, before it loads the bundle."""
    global _settings, _secrets
    _settings, _secrets = MappingProxyType(dict(settings)), MappingProxyType(dict(secrets))
