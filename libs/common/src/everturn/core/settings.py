"""Settings that every service shares, the marks for those with a secret and those that no page lists, secrets in files,
and the configuration file."""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from everturn.core.errors import Invalid

MAX_SECRETS: Final = 100
MAX_SECRET_BYTES: Final = 65_536
"""Limit for one file; the longest are chains of certificates."""
MAX_CONFIG_BYTES: Final = 1024 * 1024
"""Limit for the configuration file."""
SECRETS_DIR: Final = "SECRETS_DIR"
BY_ALIAS: Final = SettingsConfigDict(frozen=True, extra="ignore", populate_by_name=True, env_prefix="=")
"""Our own code passes settings by field name; the environment only by alias. Without a prefix that no variable can
have, pydantic-settings would also read MODE, MODEL or HOME, which are set for other purposes."""
METRICS_LISTEN: Final = "METRICS_LISTEN"
METRICS_LISTEN_MEANING: Final = (
    "host:port for /metrics and, on a worker, /livez and /readyz; empty for none. They need no credential, so "
    "only Prometheus and probes should reach them. Processes on one machine need different ports."
)
ADDRESS_PATTERN: Final = r"^(|(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):\d{1,5})$"
"""host:port or [host]:port, or empty; see `split_address`."""
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_BUNDLE_SECRET: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


class BadSecrets(Invalid):
    """The secrets in the folder that SECRETS_DIR names can't be used."""


class BadConfig(Invalid):
    """The configuration file that EVERTURN_CONFIG names can't be used."""


class Secrecy(StrEnum):
    """The secret part of a setting: a mark in its annotation. A SecretStr needs none."""

    VALUE = "yes"
    PASSWORD = "the password in it"  # noqa: S105 - it names what is secret
    FILE = "the file"


class Unlisted(StrEnum):
    """Why a setting is not for operators, so that no page lists it: a mark in its annotation."""

    PARENT = "the parent process sets it"
    SHARED = "the services list it, with their default"
    TESTS = "tests set it, in development mode only"


class CommonSettings(BaseSettings):
    """What every service reads from its environment. A service adds its own in its `settings.py`."""

    model_config = BY_ALIAS

    mode: Literal["development", "production"] = Field(
        default="production",
        validation_alias="EVERTURN_MODE",
        description="development accepts this machine's user without a token, and listens on loopback only. `make run` "
        "uses development unless EVERTURN_MODE is set.",
    )
    database_url: Annotated[str, Secrecy.PASSWORD] = Field(
        validation_alias="DATABASE_URL",
        description="Connection URL of this service's role: postgresql://role:password@host:port/name.",
    )
    redis_url: Annotated[str, Secrecy.PASSWORD] = Field(
        validation_alias="REDIS_URL", description="Connection URL of Redis: redis://:password@host:port/0."
    )
    objects_url: str = Field(
        validation_alias="OBJECTS_URL",
        description="Where files are kept: file:///folder, or s3://bucket/prefix?endpoint=...&region=..., "
        "with credentials from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or other sources of the AWS SDK. `make run` "
        "uses a folder in EVERTURN_HOME unless it is set.",
    )
    drain_timeout_s: int = Field(
        default=30,
        ge=10,
        le=300,
        validation_alias="DRAIN_TIMEOUT_S",
        description="Seconds that a process may take to drain after SIGTERM, before it exits: an ingress finishes the "
        "requests it has begun, and a worker hands its turns over before the next model call.",
    )
    secrets_dir: Path | None = Field(
        default=None,
        validation_alias=SECRETS_DIR,
        description="Folder of secrets: each file contains the setting that it is named after, such as DATABASE_URL. "
        "An empty file sets nothing. Environment variables take precedence.",
    )
    ready_fd: Annotated[int | None, Unlisted.PARENT] = Field(
        default=None,
        ge=0,
        validation_alias="READY_FD",
        description="File descriptor to which the process writes a JSON line when it has started.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", validation_alias="LOG_LEVEL", description="Lowest level of log lines that are written."
    )
    log_format: Literal["json", "console"] = Field(
        default="json", validation_alias="LOG_FORMAT", description="json for machines, console for people."
    )
    otlp_endpoint: str = Field(
        default="",
        pattern=r"^(|https?://[^\s]+)$",
        validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT",
        description="OpenTelemetry collector that receives traces over OTLP/HTTP, such as http://collector:4318; empty "
        "disables tracing. The SDK's other OTEL_ variables, for headers, sampling and queue, apply as well.",
    )
    failpoint: Annotated[str, Unlisted.TESTS] = Field(
        default="",
        validation_alias="FAILPOINT",
        description="name:nth:kill|stop|raise, joined by commas.",
    )
    clock_steps: Annotated[str, Unlisted.TESTS] = Field(
        default="",
        validation_alias="CLOCK_STEPS",
        description="Seconds added to the clock, and the reading from which on: 3600@1,-3600@40.",
    )

    @field_validator("database_url")
    @classmethod
    def check_database_url(cls, url: str) -> str:
        """Reject values that are not the address of a database."""
        return _check_address(url, ("postgresql", "postgres"), "postgresql://role:password@host:port/name")

    @field_validator("redis_url")
    @classmethod
    def check_redis_url(cls, url: str) -> str:
        """Reject values that are not the address of a Redis."""
        return _check_address(url, ("redis", "rediss", "unix"), "redis://:password@host:port/0")

    @model_validator(mode="after")
    def check_faults(self) -> Self:
        """Reject test faults outside development."""
        for name, asked in (("FAILPOINT", self.failpoint), ("CLOCK_STEPS", self.clock_steps)):
            if asked and self.mode != "development":
                raise ValueError(f"{name} is for tests and needs EVERTURN_MODE=development; unset it.")
        return self


def _check_address(url: str, schemes: Sequence[str], form: str) -> str:
    try:
        parts = urlsplit(url)
        # A database can have several hosts, each with a port.
        _ = [urlsplit(f"//{host}").port for host in parts.netloc.rpartition("@")[2].split(",")]
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in schemes:
        raise ValueError(f"Write it as {form}, with special characters of the password as %XX.")
    return url


def load_secrets(environment: MutableMapping[str, str] | None = None) -> None:
    """Add the secrets of the folder SECRETS_DIR to the environment, once, before any setting is read.

    Every library that reads its key from the environment finds it, but neither the engine's `inspect` nor /proc shows
    it. Raises BadSecrets.
    """
    target = os.environ if environment is None else environment
    if not (folder := target.get(SECRETS_DIR)):
        return
    try:
        files = sorted(file for file in Path(folder).iterdir() if _NAME.fullmatch(file.name) and file.is_file())
        if len(files) > MAX_SECRETS:
            raise BadSecrets(f"{folder} has {len(files)} files; at most {MAX_SECRETS} are allowed.")
        found = {file.name: _load_secret(file) for file in files}
    except OSError as error:
        raise BadSecrets(f"{error.filename or folder}: {error.strerror}.") from error
    for name, value in found.items():
        if value:
            target.setdefault(name, value)


def load_bundle_secrets(folder: Path | None, bundle_id: str) -> dict[str, str]:
    """The secrets of a bundle by name: the files of `bundles/<id>` in the folder SECRETS_DIR. Raises BadSecrets."""
    if folder is None or not (own := folder / "bundles" / bundle_id).is_dir():
        return {}
    try:
        files = sorted(file for file in own.iterdir() if _BUNDLE_SECRET.fullmatch(file.name) and file.is_file())
        if len(files) > MAX_SECRETS:
            raise BadSecrets(f"{own} has {len(files)} files; at most {MAX_SECRETS} are allowed.")
        return {file.name: _load_secret(file) for file in files}
    except OSError as error:
        raise BadSecrets(f"{error.filename or own}: {error.strerror}.") from error


def _load_secret(file: Path) -> str:
    """Without the line end that editors add."""
    with file.open("rb") as opened:
        data = opened.read(MAX_SECRET_BYTES + 1)
    if len(data) > MAX_SECRET_BYTES:
        raise BadSecrets(f"{file} is longer than {MAX_SECRET_BYTES} bytes.")
    try:
        text = data.decode().strip("\r\n")
    except UnicodeDecodeError as error:
        raise BadSecrets(f"{file} is not valid UTF-8.") from error
    if "\0" in text:
        raise BadSecrets(f"{file} contains a NUL byte.")
    return text


def load_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file. Raises BadConfig if it can't be read or is longer than MAX_CONFIG_BYTES."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
        if len(data) > MAX_CONFIG_BYTES:
            raise BadConfig(f"{path} is longer than {MAX_CONFIG_BYTES} bytes.")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise BadConfig(f"{path}: {error.strerror}.") from error
    except ValueError as error:
        raise BadConfig(f"{path}: {error}") from error


_MESSAGES: Final[Mapping[str, str]] = {
    "bool_parsing": "It must be true or false",
    "bool_type": "It must be true or false",
    "extra_forbidden": "Unknown key. Remove it or correct its name",
    "float_type": "It must be a number",
    "frozen_set_type": 'It must be a list such as ["a", "b"]',
    "int_parsing": "It must be a whole number",
    "int_type": "It must be a whole number",
    "missing": "It is missing",
    "tuple_type": 'It must be a list such as ["a", "b"]',
}
"""Sentences in place of Pydantic's, which name Python's types, by the type of the problem."""
_QUOTED: Final = frozenset({"bool_type", "float_type", "int_type"})
"""Problems of values that may be right but for their quotes."""
_UNWRITTEN: Final = re.compile(r"\[[a-z]+\]")
"""Parts of a place that are not in the file: Pydantic's `[key]`, and our tags of unions."""


def name_place(place: Sequence[str | int]) -> str:
    """A place in a file for people, who count from 1: `policy 2.when`."""
    parts = [f" {part + 1}" if isinstance(part, int) else f".{part}" for part in place if not _is_unwritten(part)]
    return "".join(parts).lstrip(". ")


def _is_unwritten(part: str | int) -> bool:
    return _UNWRITTEN.fullmatch(str(part)) is not None


def explain_errors(error: ValidationError) -> list[str]:
    """One line for each wrong setting, without its value, which can be a secret. Problems of several settings name
    none."""
    lines: list[str] = []
    for problem in error.errors(include_url=False):
        place = name_place(problem["loc"])
        message = _MESSAGES.get(problem["type"], problem["msg"].removeprefix("Value error, "))
        if problem["type"] in _QUOTED and isinstance(problem["input"], str):
            message += ", without quotes"
        lines.append(f"{place}: {message}" if place else message)
    return lines


def suggest_key(key: str, known: Iterable[str]) -> str:
    """A sentence that names the known key that an unknown one is like; empty if there is none."""
    like = get_close_matches(key, list(known), n=1)
    return f"Unknown key. Perhaps you mean {like[0]}" if like else ""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[host]:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
