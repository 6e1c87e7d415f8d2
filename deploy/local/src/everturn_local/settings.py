"""The only place where the local runner reads its environment: where state lives, the port, what services inherit."""

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

REPOSITORY = Path(__file__).resolve().parents[4]


class LocalSettings(BaseSettings):
    """Settings of `make run`. Durations are seconds."""

    model_config = SettingsConfigDict(extra="ignore")

    everturn_home: Path = Field(default=REPOSITORY / ".everturn", description="Folder that holds all state.")
    host: str = Field(default="127.0.0.1", description="Address the ingress listens on.")
    port: int = Field(default=8080, ge=0, le=65_535, description="Port of the first ingress; 0 picks a free one.")


def load_settings() -> LocalSettings:
    return LocalSettings()


def load_environment() -> dict[str, str]:
    """The caller's environment, passed on to the services: model keys, proxies, certificates."""
    return dict(os.environ)
