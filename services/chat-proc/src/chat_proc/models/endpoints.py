"""The operator's endpoints: named servers that speak the protocol of a provider (`models.endpoints` in the
configuration file)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from chat_proc.models.streams import REPLY_TIMEOUT_S
from everturn.core.logging import is_secret_name

FIRST_TOKEN_TIMEOUT_S: Final = 600.0
"""For servers that an operator names: one may have to load its model first, and then read a request of 24,000 tokens,
at 40 to 400 tokens a second."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


@dataclass(frozen=True, slots=True)
class Server:
    """Where the models of an endpoint are called, and with which key; None if it needs none."""

    endpoint: str
    base_url: str
    api_key: str | None = field(repr=False)


class Endpoint(BaseModel):
    """One endpoint. Its models are named `<endpoint>:<name>`, and its key is in the variable `key_env`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: Literal["openai", "openai-responses", "anthropic"]
    base_url: str
    key_env: str | None = None
    first_token_timeout_s: float = Field(default=FIRST_TOKEN_TIMEOUT_S, ge=1, le=REPLY_TIMEOUT_S)
    """How long the server may send nothing before the first token of a reply."""

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            is_valid = bool(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
        except ValueError:
            is_valid = False
        else:
            is_valid = is_valid and "@" not in parts.netloc and not parts.query and not parts.fragment
        if not is_valid:
            raise ValueError("Write it as https://host:port/path, and name the variable with the key in `key_env`")
        return url

    @field_validator("key_env")
    @classmethod
    def _check_key_env(cls, name: str) -> str:
        if not _VARIABLE.fullmatch(name) or not is_secret_name(name):
            raise ValueError(
                "Name a variable in capital letters that ends in KEY, TOKEN, SECRET or PASSWORD; the values of such "
                "variables are removed from logs and tool results"
            )
        return name

    def has_key(self, environment: Mapping[str, str]) -> bool:
        """Whether the key is set, or none is needed."""
        return self.key_env is None or bool(environment.get(self.key_env, "").strip())

    def build_server(self, name: str, environment: Mapping[str, str]) -> Server:
        """The server of the endpoint with this name. Its key must be set."""
        return Server(name, self.base_url, None if self.key_env is None else environment[self.key_env].strip())
