"""Settings of the broker, from the environment. Supervisors read none: they get theirs over their line."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings

from everturn.core.settings import ADDRESS_PATTERN, BY_ALIAS, METRICS_LISTEN, METRICS_LISTEN_MEANING, Secrecy
from everturn.execution.broker_messages import TLS_DIR, TLS_DIR_MEANING
from everturn.execution.messages import parse_uid_range


class BrokerSettings(BaseSettings):
    """Everything that can be set about a broker process."""

    model_config = BY_ALIAS

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", validation_alias="LOG_LEVEL", description="Lowest level of log lines that are written."
    )
    log_format: Literal["json", "console"] = Field(
        default="json", validation_alias="LOG_FORMAT", description="json for machines, console for people."
    )
    socket: Path = Field(
        default=Path("/run/everturn/broker.sock"),
        validation_alias="BROKER_SOCKET",
        description="Unix socket on which the broker serves workers; only the broker and the operator may be able to "
        "write to its "
        "folder.",
    )
    socket_group: str = Field(
        default="",
        validation_alias="BROKER_SOCKET_GROUP",
        description="Group, by name or number, that may connect besides the broker's own user; empty for the broker's "
        "own group.",
    )
    tcp: str = Field(
        default="",
        pattern=ADDRESS_PATTERN,
        validation_alias="BROKER_TCP",
        description="host:port on which the broker serves workers on other machines, with mutual TLS only; empty for "
        "none.",
    )
    tls_dir: Annotated[Path | None, Secrecy.FILE] = Field(
        default=None, validation_alias=TLS_DIR, description=TLS_DIR_MEANING
    )
    docker_host: str = Field(
        default="unix:///var/run/docker.sock",
        validation_alias="DOCKER_HOST",
        description="Address of the container engine: unix:///path or, on a separate network, tcp://host:port.",
    )
    profiles: str = Field(
        default="",
        validation_alias="EXECUTION_PROFILES",
        description="Named profiles of what a program may use: JSON, or the path of a JSON file; `default` always "
        "exists.",
    )
    max_pairs: int = Field(
        default=16,
        ge=1,
        le=1000,
        validation_alias="BROKER_MAX_PAIRS",
        description="Maximum number of container pairs at once, including warm ones.",
    )
    uids: str = Field(
        default="22000-22999",
        validation_alias="BROKER_UIDS",
        description="User ids for executors, one per pair, as first-last; no account and no other broker may use them.",
    )
    metrics_listen: str = Field(
        default="", pattern=ADDRESS_PATTERN, validation_alias=METRICS_LISTEN, description=METRICS_LISTEN_MEANING
    )

    @field_validator("docker_host", mode="before")
    @classmethod
    def fill_engine(cls, value: object) -> object:
        """An empty DOCKER_HOST means the default, as it does to the engine's own client."""
        return value or "unix:///var/run/docker.sock"

    @model_validator(mode="after")
    def check_uids(self) -> Self:
        """Reject a range with fewer users than pairs: two pairs would share a user, and the kernel's counts per
        user."""
        if (count := parse_uid_range(self.uids).count) < self.max_pairs:
            raise ValueError(f"BROKER_UIDS has {count} users, and BROKER_MAX_PAIRS needs {self.max_pairs}.")
        return self

    @model_validator(mode="after")
    def check_tls(self) -> Self:
        """Reject a network listener without mutual TLS."""
        if self.tcp and not self.tls_dir:
            raise ValueError(f"BROKER_TCP needs {TLS_DIR}.")
        return self
