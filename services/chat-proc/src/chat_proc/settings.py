"""Settings of a worker: from the environment, and from the operator's configuration file (EVERTURN_CONFIG)."""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings

from chat_proc.bundles.manifest import (
    MAX_ROUNDS,
    BundleId,
    CodecSetting,
    Instructions,
    ModelRoleName,
    ReactConfig,
    Section,
    merge_react,
)
from chat_proc.bundles.repositories import BundleTable
from chat_proc.catalog.call_policy import AddressRules
from chat_proc.catalog.described import ToolModule
from chat_proc.catalog.mcp_servers import MAX_SERVERS, McpServer, McpServers
from chat_proc.git import GitRules, read_git_rules
from chat_proc.models.cards import ModelCard, Unpriced
from chat_proc.models.endpoints import Endpoint
from chat_proc.models.providers import check_endpoint_name
from everturn.bundles.embedding import EmbedConfig
from everturn.bundles.registry import DEFAULT_BUNDLE
from everturn.core.logging import find_named_secrets, find_url_secrets, is_secret_name
from everturn.core.settings import (
    ADDRESS_PATTERN,
    BY_ALIAS,
    METRICS_LISTEN,
    METRICS_LISTEN_MEANING,
    BadConfig,
    CommonSettings,
    Secrecy,
    Unlisted,
    explain_errors,
    load_toml,
)
from everturn.core.urls import MAX_HOST_CHARS, spell_host
from everturn.execution.broker_messages import TLS_DIR, TLS_DIR_MEANING
from everturn.execution.messages import parse_uid_range

_KEY = re.compile(r"[0-9a-fA-F]{64}")
_CALLBACK = re.compile(r"https?://[^\s/?#]{1,253}(?:/[^\s?#]{0,500})?/mcp-connections/callback")
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
MIN_CONTEXT_TOKENS = 24_000
"""The system text with all tools and ANNOUNCE takes about 8,000, one round with its program and result as many
again."""

MIN_BATTERY_INTERVAL_S: Final = 300
"""A run takes about half a minute."""

LauncherName = Literal["containers", "bubblewrap"]
"""What can start programs. `sandbox/opening.py` says how each is opened, and in which order `auto` tries them."""
ExecutionMode = Literal["auto", LauncherName, "off"]


_NETWORK_VARIABLES: Final = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
)


class ExecutionSettings(BaseSettings):
    """How generated programs run; also all that the escape battery needs."""

    model_config = BY_ALIAS

    execution_mode: ExecutionMode = Field(
        default="auto",
        validation_alias="EXECUTION_MODE",
        description="How generated programs run; auto uses the first of the launchers that works here.",
    )
    broker_url: str = Field(
        default="",
        validation_alias="BROKER_URL",
        description="Address of the broker that starts containers for programs: unix:///path or tls://host:port; empty "
        "for none.",
    )
    broker_tls_dir: Annotated[Path | None, Secrecy.FILE] = Field(
        default=None, validation_alias=TLS_DIR, description=TLS_DIR_MEANING
    )
    sandbox_python: Path | None = Field(
        default=None,
        validation_alias="SANDBOX_PYTHON",
        description="Python interpreter for programs that run outside containers; empty allows no such programs.",
    )
    sandbox_uids: str = Field(
        default="20000-20999",
        validation_alias="SANDBOX_UIDS",
        description="Outside containers, if the worker is root: user ids for programs, one per run, as first-last; "
        "they must not belong to accounts.",
    )
    execution_profiles: str = Field(
        default="",
        validation_alias="EXECUTION_PROFILES",
        description="Named profiles of what a program may use: JSON, or the path of a JSON file; `default` always "
        "exists.",
    )
    code_profiles: str = Field(
        default="",
        validation_alias="CODE_PROFILES",
        description="Profiles that the code tool offers, separated by commas; the first applies to calls that name "
        "none. Empty offers all.",
    )
    execution_gate: Literal["off", "battery"] = Field(
        default="off",
        validation_alias="EXECUTION_GATE",
        description="battery offers the code tool only if every attempt of the escape battery is denied at startup, or "
        "before the first program if the broker did not answer then. It tests the worker's own launcher, not the "
        "engines of profiles that run elsewhere, such as fargate.",
    )

    ecs_cluster: str = Field(
        default="",
        validation_alias="ECS_CLUSTER",
        description="Cluster of Amazon ECS whose Fargate runs programs in tasks; empty for none. Region and keys come "
        "from AWS_DEFAULT_REGION and the other standard variables and places of AWS.",
    )
    ecs_task_definition: str = Field(
        default="everturn-run",
        validation_alias="ECS_TASK_DEFINITION",
        description="Family of the task definition for programs, also with a revision: everturn-run:3.",
    )
    ecs_container: str = Field(
        default="run", validation_alias="ECS_CONTAINER", description="Name of the container in the task definition."
    )
    ecs_subnets: str = Field(
        default="", validation_alias="ECS_SUBNETS", description="Subnets of the tasks, separated by commas."
    )
    ecs_security_groups: str = Field(
        default="",
        validation_alias="ECS_SECURITY_GROUPS",
        description="Security groups of the tasks, separated by commas.",
    )
    ecs_bucket: str = Field(
        default="", validation_alias="ECS_BUCKET", description="Bucket for the inputs and the results of tasks."
    )
    ecs_prefix: str = Field(
        default="everturn/runs/",
        validation_alias="ECS_PREFIX",
        pattern=r"^([A-Za-z0-9_-]+/)+$",
        max_length=200,
        description="Start of the names of objects in ECS_BUCKET and of secrets; each installation needs its own. It "
        "ends with /.",
    )

    @field_validator("sandbox_uids")
    @classmethod
    def check_uids(cls, value: str) -> str:
        """Reject an invalid range of users."""
        parse_uid_range(value)
        return value


class ModelSettings(BaseSettings):
    """Which models are called and how; also all that the check of models needs."""

    model_config = BY_ALIAS

    model: str = Field(
        default="",
        validation_alias="EVERTURN_MODEL",
        description="<provider>:<name>, <endpoint>:<name> or offline; empty chooses by the API key that is set. The "
        "providers are listed with their keys among the variables that libraries read; endpoints are defined in the "
        "configuration file.",
    )
    fallback_model: str = Field(
        default="",
        validation_alias="EVERTURN_FALLBACK_MODEL",
        description="Model to use when the model has failed after all retries, in the format of EVERTURN_MODEL; empty "
        "for none.",
    )
    config: Path | None = Field(
        default=None,
        validation_alias="EVERTURN_CONFIG",
        description="TOML file with models, codecs, bundles and tools (docs/how-to/configure.md). Give the ingress and "
        "the workers the same file.",
    )
    codec: CodecSetting = Field(
        default="channels",
        validation_alias="AI_REACT_CODEC",
        description="Format of model replies, unless the configuration file sets one: channels (tags in the text), "
        "native (the provider's tool calls), json (one object), auto (native if the cards of the model and of "
        "its fallback have tool_call, else json).",
    )
    max_output_tokens: int = Field(
        default=8192, ge=256, validation_alias="MAX_OUTPUT_TOKENS", description="Maximum tokens of one model reply."
    )

    @property
    def model_environment(self) -> Mapping[str, str]:
        """The variables that decide on the model; the providers' SDKs read their keys themselves."""
        return {**os.environ, "EVERTURN_MODEL": self.model}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that no output may show."""
        return tuple(dict.fromkeys(find_named_secrets(os.environ)))


class WorkerSettings(CommonSettings, ExecutionSettings, ModelSettings):
    """Everything that can be set about one worker process."""

    worker_slots: int = Field(
        default=4,
        ge=1,
        le=256,
        validation_alias="WORKER_SLOTS",
        description="Turns that one worker runs at once. It can run as many again, for users who have none "
        "running, or while its own turns wait for a program or a silent model.",
    )
    user_running_max: int = Field(
        default=3,
        ge=1,
        le=10_000,
        validation_alias="USER_RUNNING_MAX",
        description="Maximum number of running turns of one user of a tenant while turns of others wait.",
    )
    bundles_dir: Path | None = Field(
        default=None,
        validation_alias="BUNDLES_DIR",
        description="Folder of bundles, each a folder with a bundle.toml (docs/bundles.md). Workers load changes while "
        "they run.",
    )
    default_bundle: Annotated[BundleId, Unlisted.PARENT] = Field(
        default=DEFAULT_BUNDLE,
        validation_alias="EVERTURN_DEFAULT_BUNDLE",
        description="Bundle that answers messages that name none, unless the configuration file sets one.",
    )
    bundle_environments_dir: Path | None = Field(
        default=None,
        validation_alias="BUNDLE_ENVIRONMENTS_DIR",
        description="Folder for the Python environments of bundles, which workers of one machine and user can share; "
        "empty uses a folder of temporary files. The processes of bundles read it. `make run` uses a folder in "
        "EVERTURN_HOME unless it is set.",
    )
    bundle_memory_max_mib: int = Field(
        default=4096,
        ge=256,
        validation_alias="BUNDLE_MEMORY_MAX_MIB",
        description="Maximum of host.memory_mib of a bundle, in MiB. The default of that key is 1024.",
    )
    bundle_uids: str = Field(
        default="21000-21999",
        validation_alias="BUNDLE_UIDS",
        description="If the worker is root: user ids for the processes of bundles, as first-last; they must not belong "
        "to accounts, nor overlap with SANDBOX_UIDS and BROKER_UIDS.",
    )
    git_hosts: str = Field(
        default="github.com,gitlab.com,codeberg.org,bitbucket.org",
        validation_alias="GIT_HOSTS",
        description="Hosts from which bundles, their knowledge and their projects are fetched with git: host or "
        "host:port, separated by commas. file: allows repositories on the worker's machine.",
    )
    metrics_listen: str = Field(
        default="", pattern=ADDRESS_PATTERN, validation_alias=METRICS_LISTEN, description=METRICS_LISTEN_MEANING
    )

    agent_version: Literal["v3", "v2"] = Field(
        default="v3",
        validation_alias="AI_REACT_AGENT_VERSION",
        description="With the codec channels, v3 accepts any number of thinking channels in a reply; v2 exactly one, "
        "and only one action.",
    )
    multi_action: Literal["off", "safe_fanout"] = Field(
        default="off",
        validation_alias="AI_REACT_AGENT_MULTI_ACTION",
        description="safe_fanout accepts up to four independent actions per reply; only with v3 and the codec "
        "channels.",
    )
    max_iterations: int | None = Field(
        default=None,
        ge=1,
        le=MAX_ROUNDS,
        validation_alias="AI_REACT_MAX_ITERATIONS",
        description="Maximum number of rounds of a turn, unless the configuration file sets another. Default: 15 with "
        "the codec channels, 50 with native and json, 100 with the workflow dag.",
    )
    turn_wall_time_s: float = Field(
        default=1800.0,
        gt=0,
        validation_alias="TURN_WALL_TIME_S",
        description="Seconds for which workers may hold a turn; waits in the queue, for a person or for a detached "
        "program do not count. After that, the current model reply is ended, and the call that writes the final answer "
        "may take two minutes more.",
    )
    approval_timeout_s: float = Field(
        default=86_400.0,
        gt=0,
        le=2_592_000.0,
        validation_alias="APPROVAL_TIMEOUT_S",
        description="Seconds that a person has to answer an approval. At most 30 days.",
    )
    turn_tokens: int = Field(
        default=2_000_000,
        ge=1,
        validation_alias="TURN_TOKENS",
        description="Input and output tokens that a turn may use.",
    )
    turn_cost_usd: float = Field(
        default=10.0, gt=0, validation_alias="TURN_COST_USD", description="US dollars that a turn may cost."
    )

    cache_ttl_s: float = Field(
        default=300.0,
        ge=0,
        validation_alias="CACHE_TTL_SECONDS",
        description="Length of a pause, in seconds, after which older turns are shown to the model in shortened form; "
        "0 never shortens them.",
    )
    retention_days: int = Field(
        default=0,
        ge=0,
        le=36_500,
        validation_alias="RETENTION_DAYS",
        description="Days without activity after which a conversation is erased; 0 keeps it forever. Set it for "
        "`migrate` too: the database lets no worker erase younger conversations.",
    )
    orphans: Literal["keep", "delete"] = Field(
        default="delete",
        validation_alias="ORPHANS",
        description="What to do with stored objects that no row names; keep leaves them to `sweep-objects`.",
    )
    web_fetch: Literal["off", "ask", "seen", "open"] = Field(
        default="seen",
        validation_alias="WEB_FETCH",
        description="Which public pages are read without approval: none (ask), those that the conversation has seen "
        "(seen), or all (open); off disables web_fetch.",
    )
    web_fetch_allowed_hosts: str = Field(
        default="",
        validation_alias="WEB_FETCH_ALLOWED_HOSTS",
        description="Hosts whose pages are read without approval, whatever the address contains: names or *.name, "
        "separated by commas.",
    )
    web_fetch_denied_hosts: str = Field(
        default="",
        validation_alias="WEB_FETCH_DENIED_HOSTS",
        description="Hosts whose pages are never read: names or *.name, separated by commas.",
    )
    web_tools_in_programs: bool = Field(
        default=False,
        validation_alias="WEB_TOOLS_IN_PROGRAMS",
        description="Whether generated programs may call web_search, and web_fetch for addresses that need no "
        "approval.",
    )
    mcp_allowed_hosts: str = Field(
        default="",
        validation_alias="MCP_ALLOWED_HOSTS",
        description="Hosts at which MCP servers may be contacted: names or *.name, separated by commas. Empty allows "
        "all but link-local addresses and the metadata addresses of clouds.",
    )
    brave_api_key: SecretStr = Field(
        default=SecretStr(""), validation_alias="BRAVE_API_KEY", description="Enables web search with Brave."
    )
    tavily_api_key: SecretStr = Field(
        default=SecretStr(""), validation_alias="TAVILY_API_KEY", description="Enables web search with Tavily."
    )
    context_max_tokens: int = Field(
        default=80_000,
        ge=MIN_CONTEXT_TOKENS,
        validation_alias="CONTEXT_MAX_TOKENS",
        description="Maximum tokens of one request, or the model's own limit if that is lower; longer conversations "
        "are summarized.",
    )

    embedder: str = Field(
        default="auto",
        validation_alias="EMBEDDER",
        description="Encoder for memory search: auto, minilm, openai:<model> or hashed (words only).",
    )

    collections: Literal["off", "on"] = Field(
        "on",
        validation_alias="COLLECTIONS",
        description="Whether agents search the documents that people keep in collections.",
    )
    user_memory: Literal["off", "on"] = Field(
        default="off",
        validation_alias="USER_MEMORY",
        description="on offers tools that remember facts about a user permanently, across conversations.",
    )

    receipt_key: SecretStr = Field(
        default=SecretStr(""),
        validation_alias="RECEIPT_KEY",
        description="Private key with which workers sign a receipt of each program that they run: Ed25519 in PEM "
        "(openssl genpkey -algorithm ed25519). Empty makes no receipts.",
    )
    battery_interval_s: int = Field(
        default=0,
        ge=0,
        le=2_592_000,
        validation_alias="BATTERY_INTERVAL_S",
        description="Seconds between two runs of the escape battery in a worker that serves turns, at least 300; 0 "
        "never repeats it. A run waits until the worker has no turn, for at most this time. Only the worker's own "
        "launcher is tested.",
    )

    connections_key: SecretStr = Field(
        default=SecretStr(""),
        validation_alias="CONNECTIONS_KEY",
        description="Key with which the tokens of people's accounts at MCP servers are encrypted: 64 hexadecimal "
        "digits (openssl rand -hex 32). Without it people can't connect accounts.",
    )
    connections_callback_url: str = Field(
        default="",
        validation_alias="CONNECTIONS_CALLBACK_URL",
        description="Address to which browsers return from the sign-in of a service: the address of this server, "
        "followed by /mcp-connections/callback. Without it people can't connect accounts.",
    )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that no tool result and no log may show."""
        own = self.brave_api_key, self.tavily_api_key, self.connections_key, self.receipt_key
        keys = [key.get_secret_value() for key in own]
        urls = find_url_secrets((self.database_url, self.redis_url, self.objects_url))
        return tuple(dict.fromkeys((*keys, *urls, *super().secrets)))

    @property
    def model_environment(self) -> Mapping[str, str]:
        return {**super().model_environment, "EVERTURN_MODE": self.mode}

    @property
    def address_rules(self) -> AddressRules:
        """Which web addresses may be requested. Without web_fetch, the operator's own tools need approval for every
        address."""
        return AddressRules(
            policy="ask" if self.web_fetch == "off" else self.web_fetch,
            allowed_hosts=_read_hosts(self.web_fetch_allowed_hosts),
            denied_hosts=_read_hosts(self.web_fetch_denied_hosts),
        )

    @property
    def git_rules(self) -> GitRules:
        """Which repositories bundles and knowledge may come from; with the proxy, the certificates and the secrets of
        this process."""
        return read_git_rules(self.git_hosts, os.environ, self.secrets_dir)

    @property
    def bundle_environments(self) -> Path:
        """The folder for the environments of bundles."""
        return self.bundle_environments_dir or Path(tempfile.gettempdir()) / f"everturn-environments-{os.geteuid()}"

    @property
    def bundle_variables(self) -> Mapping[str, str]:
        """Variables for the processes of bundles: how to reach other servers. One with a password stays here."""
        found = {name: os.environ[name] for name in _NETWORK_VARIABLES if name in os.environ}
        return {name: value for name, value in found.items() if not find_url_secrets([value])}

    @property
    def pip_variables(self) -> Mapping[str, str]:
        """Variables that pip reads, such as the address of its index."""
        variables = os.environ.items()
        return {name: value for name, value in variables if name.startswith("PIP_") or name in _NETWORK_VARIABLES}

    @field_validator("git_hosts")
    @classmethod
    def _check_git_hosts(cls, value: str) -> str:
        read_git_rules(value, {})
        return value

    @field_validator("bundle_uids")
    @classmethod
    def _check_uids(cls, value: str) -> str:
        parse_uid_range(value)
        return value

    @property
    def mcp_hosts(self) -> tuple[str, ...]:
        """The hosts of MCP servers that may be contacted; empty for all."""
        return _read_hosts(self.mcp_allowed_hosts)

    @property
    def mcp_secrets(self) -> Mapping[str, str]:
        """The secrets that descriptions of MCP servers can name."""
        return {name: value for name, value in os.environ.items() if name.startswith("MCP_") and is_secret_name(name)}

    @property
    def search_path(self) -> str:
        """Where the commands of MCP servers are looked for."""
        return os.environ.get("PATH", os.defpath)

    @field_validator("connections_key")
    @classmethod
    def _check_key(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value() and not _KEY.fullmatch(value.get_secret_value()):
            raise ValueError("write 64 hexadecimal digits, as openssl rand -hex 32 does")
        return value

    @field_validator("battery_interval_s")
    @classmethod
    def _check_interval(cls, value: int) -> int:
        if 0 < value < MIN_BATTERY_INTERVAL_S:
            raise ValueError(f"write 0, or at least {MIN_BATTERY_INTERVAL_S} seconds")
        return value

    @field_validator("connections_callback_url")
    @classmethod
    def _check_callback(cls, value: str) -> str:
        if value and not _CALLBACK.fullmatch(value):
            raise ValueError("write it as https://chat.example/mcp-connections/callback")
        return value

    @field_validator("mcp_allowed_hosts", "web_fetch_allowed_hosts", "web_fetch_denied_hosts")
    @classmethod
    def _check_hosts(cls, value: str) -> str:
        _read_hosts(value)
        return value

    @model_validator(mode="after")
    def _check_version(self) -> Self:
        if self.agent_version == "v2" and self.multi_action != "off":
            raise ValueError(
                "AI_REACT_AGENT_VERSION=v2 accepts one action per round; set AI_REACT_AGENT_MULTI_ACTION=off."
            )
        return self


def _read_hosts(listed: str) -> tuple[str, ...]:
    """Host names in ASCII. Raises ValueError for an invalid host name."""
    hosts: list[str] = []
    for name in filter(None, (part.strip().lower().rstrip(".") for part in listed.split(","))):
        bare = name.removeprefix("*.")
        bare = spell_host(bare) if len(bare) <= MAX_HOST_CHARS else ""
        if not _HOST.fullmatch(bare):
            raise ValueError(f"{name[:80]!a} is not a host name; write names such as docs.example.com or *.example.com")
        hosts.append(f"*.{bare}" if name.startswith("*.") else bare)
    return tuple(hosts)


class AgentDefaults(Section):
    """`ai`: how the turns of all bundles run, what the prompts of all of them say, and which bundle answers messages
    that name none."""

    react: ReactConfig = ReactConfig()
    instructions: Instructions = ""
    default_bundle: BundleId = DEFAULT_BUNDLE


class ProjectConfig(Section):
    """`tenants.<tenant>.projects.<project>`: what the prompts of its turns say."""

    instructions: Instructions = ""


class TenantConfig(Section):
    """`tenants.<tenant>`: what the prompts of its turns say."""

    instructions: Instructions = ""
    projects: Mapping[str, ProjectConfig] = {}


class ModelsConfig(Section):
    """`models`: the model of each role, in the format of EVERTURN_MODEL, the endpoints and cards of models, and what to
    do if a price is unknown. Other roles are rejected."""

    roles: Mapping[Literal[ModelRoleName, "embedding"], str] = {}
    endpoints: Mapping[Annotated[str, AfterValidator(check_endpoint_name)], Endpoint] = {}
    cards: Mapping[str, ModelCard] = {}
    unpriced: Unpriced = "allow"


class OperatorConfig(Section):
    """The whole file. Without a file, the environment decides everything."""

    tools: tuple[ToolModule, ...] = ()
    """Functions of the operator's own modules, offered as tools."""
    bundles: Mapping[BundleId, BundleTable] = {}
    """Properties that override those of a bundle's folder, or make a bundle without one, and repositories."""
    ai: AgentDefaults = AgentDefaults()
    tenants: Mapping[str, TenantConfig] = {}
    models: ModelsConfig = ModelsConfig()
    mcp: McpServers = Field(default_factory=dict[str, McpServer], max_length=MAX_SERVERS)
    """Servers whose tools the default bundle is offered, and others that name them."""
    embed: EmbedConfig = EmbedConfig()
    """Which pages may show the chat of an agent. Only the ingress uses it."""

    def find_react(self, bundle_id: str | None) -> ReactConfig:
        """For each key the first value set in the bundle's `config.react`, its `react`, and `ai.react`."""
        return merge_react(self.ai.react, self.bundles.get(bundle_id or "", BundleTable()).agent)


def load_config(path: Path | None, *, default_bundle: str = DEFAULT_BUNDLE) -> OperatorConfig:
    """The operator's configuration, with this default bundle unless the file sets one. Raises BadConfig with the
    invalid key."""
    try:
        config = OperatorConfig.model_validate({} if path is None else load_toml(path))
    except ValidationError as error:
        raise BadConfig(f"{path}: {'; '.join(explain_errors(error))}.") from error
    if "default_bundle" in config.ai.model_fields_set:
        return config
    return config.model_copy(update={"ai": config.ai.model_copy(update={"default_bundle": default_bundle})})
