"""The local runner's settings, the only place that reads its environment: state folder, port, inherited variables."""

import json
import os
from pathlib import Path
from typing import Annotated, Literal

from dotenv import dotenv_values
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from everturn.core.errors import EverturnError
from everturn.core.settings import BY_ALIAS, Unlisted, explain_errors

REPOSITORY = Path(__file__).resolve().parents[4]
ENV_FILE = REPOSITORY / ".env"

CODING_AGENTS = REPOSITORY / ".venv-sandbox" / "bin" / "claude-code-acp"
"""`make coding-agents` has made it last."""
WARM_PROFILES = '{"default": {"warm": 1, "preload": ["numpy", "pandas", "matplotlib.pyplot"]}}'
WARM_AND_CODING_PROFILES = json.dumps(
    {
        **json.loads(WARM_PROFILES),
        "coding": {
            "network": ["model.everturn:80"],
            "timeout_s": 1800,
            "limits": {
                "memory_bytes": 4 << 30,
                "address_space_bytes": 64 << 30,
                "processes": 512,
                "open_files": 8192,
                "file_bytes": 1 << 30,
                "work_dir_bytes": 2 << 30,
                "inodes": 200_000,
                "cpu_s": 3600,
            },
        },
    }
)
"""The default execution profiles: one warm sandbox with the imports of most programs."""


class BadSettings(EverturnError):
    """A setting can't be used."""


class LocalSettings(BaseSettings):
    """Settings of `make run`. Durations are seconds."""

    model_config = SettingsConfigDict(extra="ignore")

    everturn_home: Path = Field(default=REPOSITORY / ".everturn", description="Folder that holds all state.")
    mode: Annotated[Literal["development", "production"], Unlisted.SHARED] = Field(
        default="development", validation_alias="EVERTURN_MODE"
    )
    host: str = Field(default="127.0.0.1", description="Address the ingress listens on.")
    objects_url: Annotated[str, Unlisted.SHARED] = ""
    port: int = Field(default=8080, ge=0, le=65_535, description="Port of the first ingress; 0 picks a free one.")


class ComposeSettings(BaseSettings):
    """Settings of `make up`, `make down` and `make logs`."""

    model_config = BY_ALIAS

    home: Path = Field(
        default=REPOSITORY / "deploy",
        validation_alias="COMPOSE_HOME",
        description="Folder for .env, everturn.env, config/everturn.toml and the secrets.",
    )
    project: str = Field(
        default="everturn",
        pattern=r"^[a-z0-9][a-z0-9_-]{0,40}$",
        validation_alias="COMPOSE_PROJECT_NAME",
        description="Name prefix of containers, volumes and networks.",
    )
    host: str = Field(default="127.0.0.1", validation_alias="HOST", description="Address to listen on.")
    port: int = Field(default=8080, ge=1, le=65_535, validation_alias="PORT", description="Port to listen on.")
    workers: int = Field(default=2, ge=1, le=100, validation_alias="WORKERS", description="Number of workers.")
    s3: bool = Field(
        default=False,
        validation_alias="S3",
        description="1 keeps files in an S3 server that runs as another container.",
    )


def find_compose_env_file() -> Path:
    """The variables of the compose file, in the installation's folder."""
    return Path(os.environ.get("COMPOSE_HOME") or REPOSITORY / "deploy") / ".env"


def load_compose_settings(env_file: Path | None = None) -> ComposeSettings:
    """Like `load_settings`, from the installation's own file."""
    try:
        return ComposeSettings(_env_file=env_file or find_compose_env_file())  # pyright: ignore[reportCallIssue] pydantic-settings' own argument
    except ValidationError as error:
        raise BadSettings(". ".join(explain_errors(error))) from error


def load_settings(env_file: Path = ENV_FILE) -> LocalSettings:
    """Load from the environment, then from `env_file`, which need not exist. Raises BadSettings."""
    try:
        return LocalSettings(_env_file=env_file)  # pyright: ignore[reportCallIssue] pydantic-settings' own argument
    except ValidationError as error:
        raise BadSettings(". ".join(explain_errors(error))) from error


def load_run_environment(env_file: Path = ENV_FILE) -> dict[str, str]:
    """The variables that `make run` passes to the services: the environment, then `env_file`, and a warm sandbox, with
    one for coding agents if they are installed."""
    profiles = WARM_AND_CODING_PROFILES if CODING_AGENTS.exists() else WARM_PROFILES
    return {"EXECUTION_PROFILES": profiles, **_load_environment_and(env_file)}


def load_compose_environment() -> dict[str, str]:
    """The variables of the compose file: the environment, then the installation's own file."""
    return _load_environment_and(find_compose_env_file())


def _load_environment_and(env_file: Path) -> dict[str, str]:
    written = {name: value for name, value in dotenv_values(env_file).items() if value is not None}
    return {**written, **os.environ}


def load_environment() -> dict[str, str]:
    """The caller's environment, passed on to the services: model keys, proxies, certificates."""
    return dict(os.environ)
