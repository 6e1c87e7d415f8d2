"""Settings of the ingress, from the environment."""

import os
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings

from everturn.bundles.embedding import EmbedConfig
from everturn.core.errors import Invalid
from everturn.core.origins import read_origin
from everturn.core.settings import BY_ALIAS, BadConfig, CommonSettings, explain_errors, load_toml
from everturn.limits.token_buckets import BadLimits, parse_limits
from everturn.queue.model import QUEUE_CAPS

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
MIN_SECRET_BYTES = 32
"""RFC 7518 section 3.2: a key for HS256 must have at least 256 bits."""
MIN_SECRET_SIGNS = 8
"""Minimum number of different characters of a secret; one with fewer is a placeholder, such as a row of zeros."""
_PLACEHOLDERS = ("secret", "changeme", "change-me", "change_me", "password", "example", "default", "your-")


class LimitSettings(CommonSettings):
    """How much is admitted: calls, waiting turns, bytes, connections and streams."""

    rate_limits_writes: str = Field(
        default="",
        max_length=500,
        validation_alias="RATE_LIMITS_WRITES",
        description="Write calls allowed per role, such as registered=60/min,paid=off. Units are s, min and h; "
        "off means "
        "no limit. Other roles keep their defaults; development mode has no limits by default.",
    )
    rate_limits_reads: str = Field(
        default="",
        max_length=500,
        validation_alias="RATE_LIMITS_READS",
        description="Read calls allowed per role, in the format of RATE_LIMITS_WRITES.",
    )
    queue_max: int = Field(
        default=QUEUE_CAPS.total,
        ge=1,
        validation_alias="QUEUE_MAX",
        description="Number of waiting turns above which new ones get a 503. One user can hold an "
        "eighth of them in one project, one tenant half on each lane and three quarters in all; above that, new ones "
        "get a 429.",
    )
    bodies_max_bytes: int = Field(
        default=512_000_000,
        ge=1024,
        validation_alias="BODIES_MAX_BYTES",
        description="Bytes of request bodies that this process can hold at once; more get a 503. One user "
        "can hold a quarter; more get a 429.",
    )
    connections_max: int = Field(
        default=10_000,
        ge=1,
        validation_alias="CONNECTIONS_MAX",
        description="Maximum number of open connections of this process; more get a 503. One address can have a fifth "
        "of them, not counting those that serve an authenticated request; more get a 429. At most half can be event "
        "streams, and at most 32 of those can belong to one user.",
    )
    trusted_proxies: str = Field(
        default="",
        max_length=2000,
        validation_alias="TRUSTED_PROXIES",
        description="Addresses or networks of proxies, separated by commas: their connections are not counted by "
        "address, and their X-Forwarded-For identifies the client.",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def check_proxies(cls, text: str) -> str:
        """Reject what is neither an address nor a network."""
        read_networks(text)
        return text

    @model_validator(mode="after")
    def check_limits(self) -> Self:
        """Reject unreadable limits."""
        try:
            parse_limits(self.rate_limits_writes, {})
            parse_limits(self.rate_limits_reads, {})
        except BadLimits as error:
            raise ValueError(str(error)) from error
        return self


class IngressSettings(LimitSettings):
    """Everything that can be set about one ingress process."""

    host: str = Field(default="127.0.0.1", validation_alias="HOST", description="Address to listen on.")
    port: int = Field(
        default=8080, ge=0, le=65535, validation_alias="PORT", description="Port to listen on; 0 picks one."
    )

    message_max_bytes: int = Field(
        default=25_000_000,
        ge=1024,
        validation_alias="MESSAGE_MAX_BYTES",
        description="Maximum size of a message in bytes, including its files.",
    )
    max_image_bytes: int = Field(
        default=5_000_000,
        ge=1,
        validation_alias="MODALITY_MAX_IMAGE_BYTES",
        description="Maximum size of one image in bytes.",
    )
    max_doc_bytes: int = Field(
        default=10_000_000,
        ge=1,
        validation_alias="MODALITY_MAX_DOC_BYTES",
        description="Maximum size of one document or text file in bytes.",
    )

    web_dist: Path | None = Field(
        default=None,
        validation_alias="WEB_DIST",
        description="Folder of the built web client, clients/web/dist; without it, no web client is served.",
    )
    files_redirect: bool = Field(
        default=False,
        validation_alias="FILES_REDIRECT",
        description="1 redirects clients to the bucket for files, with URLs that are valid for a minute; S3 only. The "
        "server does not verify the contents of these files.",
    )

    config_file: Path | None = Field(
        default=None,
        validation_alias="EVERTURN_CONFIG",
        description="TOML file with models, codecs, bundles and tools (docs/how-to/configure.md). Give the ingress and "
        "the workers the same file.",
    )
    event_kinds: str = Field(
        default="form,wizard,alert",
        pattern=r"^[a-z][a-z0-9_]{0,39}(,[a-z][a-z0-9_]{0,39})*$",
        validation_alias="EVENT_KINDS",
        description="Accepted kinds of external events, separated by commas.",
    )

    embedder: str = Field(
        default="auto",
        validation_alias="EMBEDDER",
        description="Encoder for memory search: auto, minilm, openai:<model> or hashed (words only).",
    )

    clamd_url: str | None = Field(
        default=None, validation_alias="CLAMD_URL", description="tcp://host:port or unix:///path of clamd."
    )
    av_scan: Literal["", "0", "1"] = Field(
        default="", validation_alias="APP_AV_SCAN", description="1 scans uploads (default); 0 only in development mode."
    )

    auth_issuer: str | None = Field(
        default=None, validation_alias="AUTH_ISSUER", description="Issuer of accepted tokens."
    )
    auth_audience: str | None = Field(
        default=None, validation_alias="AUTH_AUDIENCE", description="Audience of accepted tokens."
    )
    auth_jwks_url: str | None = Field(
        default=None, validation_alias="AUTH_JWKS_URL", description="URL of the issuer's key set."
    )
    auth_public_key: str | None = Field(
        default=None,
        validation_alias="AUTH_PUBLIC_KEY",
        description="The issuer's public key in PEM, instead of a JWKS URL.",
    )
    auth_secret: SecretStr | None = Field(
        default=None,
        validation_alias="AUTH_SECRET",
        description="A shared secret for HS256, HS384 or HS512 tokens, instead of public keys.",
    )

    auth_unscoped_tokens: bool = Field(
        default=False,
        validation_alias="AUTH_UNSCOPED_TOKENS",
        description="1 accepts tokens without a `tenant` or `project` claim, in every tenant or project.",
    )

    signing_secret: SecretStr | None = Field(
        default=None,
        validation_alias="SIGNING_SECRET",
        description="Signs stream tickets, guest tokens, addresses of widgets and embedded chats; must be the same on "
        "all nodes. In development, each start generates one if this is empty; `make run` stores one in EVERTURN_HOME.",
    )
    allowed_origins: str = Field(
        default="",
        validation_alias="ALLOWED_ORIGINS",
        description="Other origins whose web pages may use this server, separated by commas: https://chat.example",
    )
    scopes_of_guests: str = Field(
        default="",
        pattern=r"^(|[A-Za-z0-9._-]+/[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)*)$",
        validation_alias="GUEST_SCOPES",
        description="Where people without an account are accepted as guests: tenant/project, separated by commas, such "
        "as default/default. Empty accepts none.",
    )

    @property
    def development(self) -> bool:
        return self.mode == "development"

    @property
    def model_environment(self) -> Mapping[str, str]:
        """The variables that select the encoder; a provider's own SDK reads its key by itself."""
        return os.environ

    @property
    def taken_events(self) -> frozenset[str]:
        return frozenset(self.event_kinds.split(",")) - {"followup", "steer", "cancel", "approve", "deny"}

    @property
    def has_keys(self) -> bool:
        return any((self.auth_jwks_url, self.auth_public_key, self.auth_secret))

    @property
    def guest_scopes(self) -> frozenset[tuple[str, str]]:
        """Tenants and projects that accept guests."""
        pairs = (scope.partition("/") for scope in self.scopes_of_guests.split(",") if scope)
        return frozenset((tenant, project) for tenant, _, project in pairs)

    @field_validator("allowed_origins")
    @classmethod
    def check_origins(cls, text: str) -> str:
        """Reject what is not an origin."""
        read_origins(text)
        return text

    @model_validator(mode="after")
    def check_safety(self) -> Self:
        """Reject settings that would admit unauthenticated people or infected files."""
        if self.development and self.host not in LOOPBACK_HOSTS:
            raise ValueError("EVERTURN_MODE=development listens on a loopback address only; set HOST=127.0.0.1.")
        if not self.development and not self.has_keys:
            raise ValueError("Outside development mode, set AUTH_JWKS_URL, AUTH_PUBLIC_KEY or AUTH_SECRET.")
        if not self.development and self.signing_secret is None:
            raise ValueError(
                "Outside development mode, set SIGNING_SECRET, for example to the output of `openssl rand -hex 32`."
            )
        if not self.development and self.av_scan == "0":
            raise ValueError("APP_AV_SCAN=0 is for development mode only.")
        self._check_secret("AUTH_SECRET", self.auth_secret)
        self._check_secret("SIGNING_SECRET", self.signing_secret)
        self._check_tokens()
        return self

    def _check_secret(self, name: str, secret: SecretStr | None) -> None:
        """Reject short secrets, and outside development also placeholders such as those in documentation."""
        if secret is None:
            return
        text = secret.get_secret_value()
        if len(text.encode()) < MIN_SECRET_BYTES:
            raise ValueError(f"{name} needs at least {MIN_SECRET_BYTES} bytes.")
        known = text.lower().startswith(_PLACEHOLDERS) or len(set(text)) < MIN_SECRET_SIGNS
        if known and not self.development:
            raise ValueError(f"{name} is a placeholder; generate a random one with `openssl rand -hex 32`.")

    def _check_tokens(self) -> None:
        if not self.has_keys:
            return
        if not (self.auth_issuer and self.auth_audience):
            raise ValueError("Tokens need AUTH_ISSUER and AUTH_AUDIENCE.")
        if sum(map(bool, (self.auth_jwks_url, self.auth_public_key, self.auth_secret))) > 1:
            raise ValueError("Set only one of AUTH_JWKS_URL, AUTH_PUBLIC_KEY and AUTH_SECRET.")
        url = self.auth_jwks_url or ""
        if url and not url.startswith("https://") and not self.development:
            raise ValueError("AUTH_JWKS_URL must begin with https:// outside development.")


class OperatorSettings(BaseSettings):
    """What only the commands of an operator read; the serving process is never given it."""

    model_config = BY_ALIAS

    database_owner_url: SecretStr = Field(
        validation_alias="DATABASE_OWNER_URL",
        description="postgresql://role:password@host:port/name of the migrating role, for operator commands.",
    )


class MigrationSettings(OperatorSettings):
    """What only `migrate` reads; serving processes must not get it.

    With an administrator's address `migrate` also creates the roles and the database.
    """

    admin_url: SecretStr | None = Field(
        default=None,
        validation_alias="DATABASE_ADMIN_URL",
        description="postgresql://... of a superuser, or of a role with CREATEROLE and CREATEDB: `migrate` uses it to "
        "create missing roles and the database, and to set the roles' passwords to those in their addresses.",
    )
    ingress_url: SecretStr | None = Field(
        default=None,
        validation_alias="DATABASE_INGRESS_URL",
        description="With DATABASE_ADMIN_URL: the ingress's DATABASE_URL.",
    )
    worker_url: SecretStr | None = Field(
        default=None,
        validation_alias="DATABASE_WORKER_URL",
        description="With DATABASE_ADMIN_URL: the workers' DATABASE_URL.",
    )


class SharedRoles(BaseModel):
    """`models.roles`: the encoder with which workers index, in the format of EMBEDDER."""

    embedding: str | None = None


class SharedModels(BaseModel):
    """`models`."""

    roles: SharedRoles = SharedRoles()


class SharedConfig(BaseModel):
    """The part of the configuration file that the ingress needs; workers check the rest of it."""

    models: SharedModels = SharedModels()
    embed: EmbedConfig = EmbedConfig()


def load_config(path: Path | None) -> SharedConfig:
    """The configuration that ingress and workers share. Raises BadConfig if the file can't be used."""
    if path is None:
        return SharedConfig()
    try:
        return SharedConfig.model_validate(load_toml(path))
    except ValidationError as error:
        raise BadConfig(f"{path}: {'; '.join(explain_errors(error))}.") from error


def load_operator_url() -> str:
    """DATABASE_OWNER_URL. Raises Invalid if it is not set."""
    try:
        settings = OperatorSettings()  # pyright: ignore[reportCallIssue] required settings come from the environment
    except ValidationError as error:
        raise Invalid("Set DATABASE_OWNER_URL to the address of the database with the migrating role.") from error
    return settings.database_owner_url.get_secret_value()


def load_migration_settings() -> MigrationSettings:
    """Load the settings. Raises Invalid, which names what is missing."""
    try:
        return MigrationSettings()  # pyright: ignore[reportCallIssue] required settings come from the environment
    except ValidationError as error:
        raise Invalid(" ".join(explain_errors(error))) from error


def read_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse a comma-separated list of addresses and networks. Raises ValueError for anything else."""
    return tuple(ip_network(item.strip()) for item in text.split(",") if item.strip())


def read_origins(text: str) -> frozenset[str]:
    """Parse a comma-separated list of origins. Raises ValueError for anything else; there are no wildcards."""
    return frozenset(read_origin(item.strip()) for item in text.split(",") if item.strip())
