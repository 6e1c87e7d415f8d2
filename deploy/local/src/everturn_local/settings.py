"""The only place where the local runner reads its environment: where state lives, the port, what services inherit."""

import os
from pathlib import Path
from typing import Literal

from dotenv import dotenv_values
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from everturn.errors import EverturnError
from everturn.settings import explain_errors

REPOSITORY = Path(__file__).resolve().parents[4]
ENV_FILE = REPOSITORY / ".env"

WARM_PROFILES = '{"default": {"warm": 1, "preload": ["numpy", "pandas", "matplotlib.pyplot"]}}'
"""What runs may use where nobody has said it: one sandbox waits with the imports that most programs begin with."""


class BadSettings(EverturnError):
    """A setting can't be used."""


class LocalSettings(BaseSettings):
    """Settings of `make run`. Durations are seconds."""

    model_config = SettingsConfigDict(extra="ignore")

    everturn_home: Path = Field(default=REPOSITORY / ".everturn", description="Folder that holds all state.")
    everturn_cache: Path = Field(
        default=Path("~/.cache/everturn"), description="Folder for downloads of `make images`; may be deleted."
    )
    mode: Literal["development", "production"] = Field(
        default="development",
        validation_alias="EVERTURN_MODE",
        description="What the services of `make run` run in; production needs the settings that say who may come in.",
    )
    everturn_web: Literal["build", "off"] = Field(
        default="build", description="build makes the page anew when its sources changed; off starts without one."
    )
    host: str = Field(default="127.0.0.1", description="Address the ingress listens on.")
    objects_url: str = Field(default="", description="Where files are kept; empty for a folder of the home.")
    port: int = Field(default=8080, ge=0, le=65_535, description="Port of the first ingress; 0 picks a free one.")


def load_settings(env_file: Path = ENV_FILE) -> LocalSettings:
    """From the environment, and what isn't there from `env_file`, which may be absent. Raises BadSettings."""
    try:
        return LocalSettings(_env_file=env_file)  # pyright: ignore[reportCallIssue] pydantic-settings' own argument
    except ValidationError as error:
        raise BadSettings(". ".join(explain_errors(error))) from error


def load_run_environment(env_file: Path = ENV_FILE) -> dict[str, str]:
    """What `make run` hands to the services: the environment, what isn't there from `env_file`, and a warm sandbox."""
    written = {name: value for name, value in dotenv_values(env_file).items() if value is not None}
    return {"EXECUTION_PROFILES": WARM_PROFILES, **written, **os.environ}


def load_environment() -> dict[str, str]:
    """The caller's environment, passed on to the services: model keys, proxies, certificates."""
    return dict(os.environ)
