"""Where requests in the format of a provider are sent: the server of a chosen model, with the operator's key."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from chat_proc.models.endpoints import Endpoint
from chat_proc.models.providers import BadModelSetting, find_base_url
from chat_proc.models.roles import OFFLINE, SCRIPTED, ModelChoice

WireProtocol = Literal["anthropic", "openai"]
"""Whose APIs a server has. A server with one of OpenAI's usually has both, Chat Completions and Responses."""

ANTHROPIC_URL: Final = "https://api.anthropic.com"
OPENAI_URL: Final = "https://api.openai.com/v1"
_PROTOCOLS: Final[Mapping[str, WireProtocol]] = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openai-responses": "openai",
}
_REASONS: Final[Mapping[str, str]] = {
    OFFLINE: "it is the built-in demo",
    SCRIPTED: "it is a script",
    "azure": "its addresses contain the name of a deployment",
    "bedrock": "its requests are signed",
    "vertex": "its tokens change every hour",
}


@dataclass(frozen=True, slots=True)
class Upstream:
    """The server of a model. `base_url` has no slash at its end; with `openai` it ends with the version, such as `/v1`.

    `headers` identify the operator.
    """

    protocol: WireProtocol
    base_url: str
    headers: Mapping[str, str] = field(repr=False)


def find_upstream(choice: ModelChoice, environment: Mapping[str, str], endpoints: Mapping[str, Endpoint]) -> Upstream:
    """The server of a model whose key is set, as `read_choice` has checked. Raises BadModelSetting for a model whose
    requests can't be passed on as they are."""
    if endpoint := endpoints.get(choice.provider):
        key = endpoint.build_server(choice.provider, environment).api_key
        headers = {} if key is None else _bear(key)
        return Upstream(_PROTOCOLS[endpoint.protocol], endpoint.base_url.rstrip("/"), headers)
    if choice.provider not in _PROTOCOLS:
        reason = _REASONS.get(choice.provider, "its provider is unknown")
        raise BadModelSetting(
            f"Coding agents can't use the model {choice.full_name}: {reason}. Choose one of {', '.join(_PROTOCOLS)} "
            "or of an endpoint."
        )
    protocol, url = _PROTOCOLS[choice.provider], find_base_url(choice, environment, endpoints).rstrip("/")
    if protocol == "anthropic":
        return Upstream(protocol, url or ANTHROPIC_URL, _identify_to_anthropic(environment))
    return Upstream(protocol, url or OPENAI_URL, _identify_to_openai(environment))


def _identify_to_anthropic(environment: Mapping[str, str]) -> Mapping[str, str]:
    if key := environment.get("ANTHROPIC_API_KEY", "").strip():
        return {"X-Api-Key": key}
    return _bear(environment.get("ANTHROPIC_AUTH_TOKEN", "").strip())


def _identify_to_openai(environment: Mapping[str, str]) -> Mapping[str, str]:
    """With the organization and the project that OpenAI's SDK reads, too: they decide who pays."""
    named = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
    given = {header: environment.get(variable, "").strip() for header, variable in named.items()}
    key = environment.get("OPENAI_API_KEY", "").strip()
    return _bear(key) | {header: value for header, value in given.items() if value}


def _bear(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
