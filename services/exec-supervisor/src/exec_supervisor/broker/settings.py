"""Settings of the broker, from the environment. Supervisors read none: they get theirs over their line."""

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings

from everturn.core.settings import (
    ADDRESS_PATTERN,
    BY_ALIAS,
    METRICS_LISTEN,
    METRICS_LISTEN_MEANING,
    Secrecy,
    split_address,
)
from everturn.execution.broker_messages import TLS_DIR, TLS_DIR_MEANING
from everturn.execution.messages import parse_uid_range
from exec_supervisor.broker.placement import parse_node_selector, parse_tolerations


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
    engine: Literal["docker", "kubernetes"] = Field(
        default="docker",
        validation_alias="BROKER_ENGINE",
        description="What runs the pairs: docker, as containers of the engine at DOCKER_HOST, or kubernetes, as Pods "
        "of the cluster that the broker itself runs in.",
    )
    layout: Literal["pair", "combined"] = Field(
        default="pair",
        validation_alias="BROKER_LAYOUT",
        description="How BROKER_ENGINE=docker runs a program: pair, with its supervisor in a container of its own, or "
        "combined, with both in one container of the executor's image, for engines that can't run pairs.",
    )
    docker_host: str = Field(
        default="unix:///var/run/docker.sock",
        validation_alias="DOCKER_HOST",
        description="Address of the container engine: unix:///path or, on a separate network, tcp://host:port.",
    )
    dial: str = Field(
        default="",
        pattern=ADDRESS_PATTERN,
        validation_alias="BROKER_DIAL",
        description="host:port on which the broker listens for the supervisors of its Pods, and to which they connect: "
        "an IP address of the broker's own Pod. Required with BROKER_ENGINE=kubernetes.",
    )
    kubernetes_api: str = Field(
        default="https://kubernetes.default.svc",
        pattern=r"^https://[^\s/]+$",
        validation_alias="KUBERNETES_API",
        description="Address of the API of Kubernetes.",
    )
    kubernetes_account_dir: Annotated[Path, Secrecy.FILE] = Field(
        default=Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        validation_alias="KUBERNETES_ACCOUNT_DIR",
        description="Folder with the broker's token, ca.crt and namespace, as a Pod gets them of its service account.",
    )
    kubernetes_namespace: str = Field(
        default="",
        pattern=r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$",
        validation_alias="KUBERNETES_NAMESPACE",
        description="Namespace of the Pods that run programs; empty for the broker's own.",
    )
    kubernetes_seccomp: str = Field(
        default="",
        max_length=200,
        validation_alias="KUBERNETES_SECCOMP",
        description="Seccomp profile of the containers that run programs, as a path below the kubelet's folder of "
        "profiles; empty for the default profile of the container runtime. `python -m "
        "exec_supervisor.broker.seccomp_profile` writes ours.",
    )
    kubernetes_runtime_class: str = Field(
        default="",
        max_length=253,
        validation_alias="KUBERNETES_RUNTIME_CLASS",
        description="RuntimeClass of the Pods, such as one for gVisor or Kata; empty for the cluster's default.",
    )
    kubernetes_node_selector: str = Field(
        default="",
        max_length=4000,
        validation_alias="KUBERNETES_NODE_SELECTOR",
        description="Labels that a node must have to run the Pods, as key=value, separated by commas; empty for any "
        "node.",
    )
    kubernetes_tolerations: str = Field(
        default="",
        max_length=4000,
        validation_alias="KUBERNETES_TOLERATIONS",
        description="Taints of nodes that the Pods tolerate, as key=value:effect, separated by commas; without a value "
        "any value, without an effect every effect.",
    )
    kubernetes_priority_class: str = Field(
        default="",
        max_length=253,
        validation_alias="KUBERNETES_PRIORITY_CLASS",
        description="PriorityClass of the Pods; empty for the cluster's default.",
    )
    pod_name: str = Field(
        default="",
        max_length=253,
        validation_alias="POD_NAME",
        description="Name of the broker's own Pod. With POD_UID, the cluster removes the broker's Pods with it. Only "
        "if KUBERNETES_NAMESPACE is empty.",
    )
    pod_uid: str = Field(
        default="", max_length=100, validation_alias="POD_UID", description="UID of the broker's own Pod."
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
        description="Maximum number of pairs at once, including warm ones.",
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

    @field_validator("kubernetes_node_selector")
    @classmethod
    def check_node_selector(cls, value: str) -> str:
        """Reject what the cluster would reject with each Pod."""
        parse_node_selector(value)
        return value

    @field_validator("kubernetes_tolerations")
    @classmethod
    def check_tolerations(cls, value: str) -> str:
        """Reject what the cluster would reject with each Pod."""
        parse_tolerations(value)
        return value

    @model_validator(mode="after")
    def check_uids(self) -> Self:
        """Reject a range with fewer users than pairs: two pairs would share a user, and the kernel's counts per
        user."""
        if (count := parse_uid_range(self.uids).count) < self.max_pairs:
            raise ValueError(f"BROKER_UIDS has {count} users, and BROKER_MAX_PAIRS needs {self.max_pairs}.")
        return self

    @model_validator(mode="after")
    def check_dial(self) -> Self:
        """Reject a broker of Pods to which no supervisor could connect: they look up no names."""
        if self.engine == "kubernetes":
            try:
                is_any = ip_address(split_address(self.dial)[0]).is_unspecified
            except ValueError:
                is_any = True
            if is_any:
                raise ValueError("BROKER_ENGINE=kubernetes needs BROKER_DIAL with the IP address of the broker's Pod.")
        return self

    @model_validator(mode="after")
    def check_layout(self) -> Self:
        """Reject a layout that Pods don't have."""
        if self.engine == "kubernetes" and self.layout != "pair":
            raise ValueError("BROKER_LAYOUT=combined needs BROKER_ENGINE=docker.")
        return self

    @model_validator(mode="after")
    def check_owner(self) -> Self:
        """Reject an owner in another namespace: the cluster would remove the Pods at once."""
        if self.pod_uid and self.kubernetes_namespace:
            raise ValueError("POD_UID can't be set with KUBERNETES_NAMESPACE: owners have the namespace of their Pods.")
        return self

    @model_validator(mode="after")
    def check_tls(self) -> Self:
        """Reject a network listener without mutual TLS."""
        if self.tcp and not self.tls_dir:
            raise ValueError(f"BROKER_TCP needs {TLS_DIR}.")
        return self
