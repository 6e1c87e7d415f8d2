"""How an author or an operator describes an MCP server: `[mcp.<alias>]` of bundle.toml and of the configuration file,
and `MCP_TOOL_SPECS` of tools_descriptor.py."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from chat_proc.catalog.described import MAX_TIMEOUT_S
from everturn.core.errors import Invalid
from everturn.core.logging import is_secret_name
from everturn.core.settings import explain_errors
from everturn.mcp_connections.connections import ALIAS
from everturn.turns.model import Effect

MAX_SERVERS: Final = 20
"""Servers of one agent. Each has a connection or a process in every worker."""
TOOLS_DESCRIPTOR: Final = "tools_descriptor.py"
MAX_DESCRIPTOR_BYTES: Final = 256 * 1024
TOKEN_TIMEOUT_S: Final = 15.0
"""For an access token, with all requests that it takes. A call waits so long."""
ALL: Final = "*"
"""In place of the names of tools: all tools of the server."""

_REFERENCE = re.compile(r"\$\{([^{}]{1,200})\}")
_VARIABLE = re.compile(r"MCP_[A-Z0-9_]{1,96}")
_BUNDLE_SECRET = re.compile(r"b:[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SECRET_HEADERS: Final = ("authorization", "cookie", "proxy-authorization", "x-api-key")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_OWN_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "last-event-id"}
    | {"mcp-protocol-version", "mcp-session-id", "transfer-encoding", "upgrade"}
)

FindSecret = Callable[[str], str | None]
"""The value of a reference, such as `MCP_CRM_TOKEN` or `b:crm.token`; None if it is not set."""


def _check_template(text: str) -> str:
    for name in find_references(text):
        if not (_VARIABLE.fullmatch(name) and is_secret_name(name)) and not _BUNDLE_SECRET.fullmatch(name):
            raise ValueError(
                f"${{{name[:80]}}} is not a reference: write ${{b:name}} for a secret of the bundle, or a variable "
                "that begins with MCP_ and ends in KEY, TOKEN, SECRET or PASSWORD"
            )
    return text


Template = Annotated[
    str, Field(max_length=4_000, pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$"), AfterValidator(_check_template)
]
"""A text in which `${name}` stands for a secret."""


def find_references(text: str) -> list[str]:
    """The names of the secrets in a template."""
    return _REFERENCE.findall(text)


def fill_template(text: str, find: FindSecret) -> str:
    """The text with its secrets. Raises Invalid if one is not set."""

    def replace(match: re.Match[str]) -> str:
        value = find(match[1])
        if not value:
            raise Invalid(f"The secret {match[1]} is not set.")
        return value

    return _REFERENCE.sub(replace, text)


def _check_secret(text: str) -> str:
    if not _REFERENCE.fullmatch(text):
        raise ValueError("give the secret by reference, as in ${b:name} or ${MCP_NAME_SECRET}")
    return _check_template(text)


SecretReference = Annotated[str, Field(max_length=200), AfterValidator(_check_secret)]
"""A template that is one reference."""
_Scope = Annotated[str, Field(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]{1,200}$")]


class ClientCredentials(BaseModel):
    """How the platform gets an access token as itself (RFC 6749, section 4.4). The secret belongs to one authorization
    server, so the author names it: by its `issuer`, whose metadata is read, or by its `token_url`. The MCP server can't
    send the secret elsewhere.

    `client_auth` says where the secret is sent: in the header (basic) or in the form (post). Without it the metadata
    decide.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    grant: Literal["client_credentials"]
    client_id: str = Field(min_length=1, max_length=1_000, pattern=r"^[\x20-\x7e]*$")
    client_secret: SecretReference
    issuer: str | None = None
    token_url: str | None = None
    scopes: tuple[_Scope, ...] = Field(default=(), max_length=50)
    client_auth: Literal["basic", "post"] | None = None

    @model_validator(mode="after")
    def check_place(self) -> "ClientCredentials":
        if (self.issuer is None) == (self.token_url is None):
            raise ValueError("set either issuer or token_url: the authorization server that knows the client")
        for name, url in (("issuer", self.issuer), ("token_url", self.token_url)):
            if url is not None:
                _check_url(url, name)
        return self


class PersonalGrant(BaseModel):
    """Each person connects an account of their own (RFC 6749, section 4.1, with PKCE). `title` names the service to
    them. Without `issuer` the MCP server's metadata name the authorization server, and without `client_id` the platform
    registers itself there; a secret needs both.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    grant: Literal["authorization_code"]
    title: str = Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")
    issuer: str | None = None
    client_id: str | None = Field(default=None, min_length=1, max_length=1_000, pattern=r"^[\x20-\x7e]*$")
    client_secret: SecretReference | None = None
    scopes: tuple[_Scope, ...] = Field(default=(), max_length=50)
    client_auth: Literal["basic", "post"] | None = None

    @model_validator(mode="after")
    def check_place(self) -> "PersonalGrant":
        if self.client_secret is not None and not (self.issuer and self.client_id):
            raise ValueError("client_secret needs issuer and client_id: the authorization server that knows the client")
        if self.issuer is not None:
            _check_url(self.issuer, "issuer")
        return self


Grant = Annotated[ClientCredentials | PersonalGrant, Field(discriminator="grant")]


def _check_approval(value: object) -> object:
    if not isinstance(value, bool | list | tuple):
        raise ValueError('It must be true or false, without quotes, or a list of tools such as ["send"]')
    return cast("object", value)


class McpServer(BaseModel):
    """One server: a `url` with streamable HTTP, or a `command` that is started and speaks over its input and output.

    `tools` are the offered ones. A call counts as irreversible unless the tool's annotations or `effects` say
    otherwise. `requires_approval` names the tools each of whose calls a person approves, or is true for all of them.
    If the server has no tool of such a name, all of them need approval.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = None
    headers: Mapping[str, Template] = {}
    oauth: Grant | None = None
    command: str | None = Field(default=None, min_length=1, max_length=1_000, pattern=r"^[^\x00]*$")
    args: tuple[Annotated[str, Field(max_length=4_000, pattern=r"^[^\x00]*$")], ...] = Field(default=(), max_length=100)
    env: Mapping[str, Template] = {}
    tools: tuple[str, ...] = Field(default=(ALL,), min_length=1, max_length=200)
    timeout_s: float = Field(default=60.0, gt=0, le=MAX_TIMEOUT_S, strict=True)
    effects: Mapping[str, Effect] = {}
    requires_approval: Annotated[bool | tuple[str, ...], BeforeValidator(_check_approval)] = False
    asks_after_untrusted: StrictBool = False
    in_programs: StrictBool = True

    @model_validator(mode="after")
    def check_place(self) -> "McpServer":
        if (self.url is None) == (self.command is None):
            raise ValueError("set either url or command")
        if self.url is None and self.headers:
            raise ValueError("headers belong to a server with a url; give a command its secrets in env")
        if self.command is None and (self.args or self.env):
            raise ValueError("args and env belong to a server with a command; give a url its secrets in headers")
        if self.url is None and self.oauth:
            raise ValueError("oauth belongs to a server with a url")
        if self.url is not None:
            _check_url(self.url, "url")
        if isinstance(self.oauth, PersonalGrant) and (self.effects or not isinstance(self.requires_approval, bool)):
            raise ValueError(
                "effects and names in requires_approval need tools that are known before a person is connected; write "
                "a rule in [[policy]] about args.name of call_tool"
            )
        for name, value in self.headers.items():
            _check_header(name, value)
            if self.oauth and name.lower() == "authorization":
                raise ValueError("headers: Authorization is set by oauth")
        if bad := [name for name in self.env if not _ENVIRONMENT_NAME.fullmatch(name)]:
            raise ValueError(f"env: {bad[0][:80]!a} is not the name of a variable")
        for key, names in self._named.items():
            if bad := [name for name in names if not self.offers(name)]:
                raise ValueError(f"{key}: {bad[0][:80]!a} is not one of tools: {', '.join(self.tools)[:1_000]}")
        return self

    @property
    def _named(self) -> Mapping[str, Sequence[str]]:
        """The tools that keys other than `tools` name."""
        asked = () if isinstance(self.requires_approval, bool) else self.requires_approval
        return {"requires_approval": asked, "effects": tuple(self.effects)}

    def asks_for(self, tool: str) -> bool:
        """Whether a person has to approve each call of this tool of the server."""
        return self.requires_approval if isinstance(self.requires_approval, bool) else tool in self.requires_approval

    def offers(self, tool: str) -> bool:
        """Whether this tool of the server may be offered."""
        return ALL in self.tools or tool in self.tools

    def find_missing(self, listed: Sequence[str]) -> list[tuple[str, str]]:
        """The tools that the configuration names, and a server with these tools lacks, each after its key."""
        known = {ALL, *listed}
        named = {"tools": self.tools, **self._named}
        return [(key, name) for key, names in named.items() for name in sorted(set(names) - known)]


def _check_url(url: str, key: str) -> None:
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:
        is_valid = False
    else:
        is_valid = is_valid and "@" not in parts.netloc and not parts.fragment and len(url) <= 2_000
    if not is_valid:
        raise ValueError(f"{key}: write it as https://host:port/path, and give secrets in headers")


def _check_header(name: str, value: str) -> None:
    if not _HEADER.fullmatch(name):
        raise ValueError(f"headers: {name[:80]!a} is not the name of a header")
    if name.lower() in _OWN_HEADERS:
        raise ValueError(f"headers: {name} is set by the connection")
    if name.lower() in _SECRET_HEADERS and not find_references(value):
        raise ValueError(f"headers: give the secret of {name} by reference, as in ${{b:name}} or ${{MCP_NAME_TOKEN}}")


ServerAlias = Annotated[str, Field(pattern=ALIAS)]
McpServers = Mapping[ServerAlias, McpServer]
"""The table `mcp`: servers by alias."""


class McpToolSpec(BaseModel):
    """An entry of `MCP_TOOL_SPECS`: the tools of the server `server_id` are offered as `mcp.<alias>.<tool>`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    server_id: str = Field(pattern=ALIAS)
    alias: str = Field(pattern=ALIAS)
    tools: tuple[str, ...] = Field(default=(ALL,), min_length=1, max_length=200)


_SPECS: Final = TypeAdapter(Annotated[tuple[McpToolSpec, ...], Field(max_length=MAX_SERVERS)])


def read_tool_specs(source: bytes, name: str = "MCP_TOOL_SPECS") -> tuple[McpToolSpec, ...] | None:
    """What `tools_descriptor.py` assigns to `MCP_TOOL_SPECS`, read as data: nothing is executed. None without it.

    Raises Invalid with the line.
    """
    if len(source) > MAX_DESCRIPTOR_BYTES:
        raise Invalid(f"{TOOLS_DESCRIPTOR} has {len(source)} bytes; at most {MAX_DESCRIPTOR_BYTES} are allowed.")
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        raise Invalid(f"{TOOLS_DESCRIPTOR}, {line}{error.msg if isinstance(error, SyntaxError) else error}") from error
    found: ast.expr | None = None
    for statement in module.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            found = cast("ast.Assign | ast.AnnAssign", statement).value
    if found is None:
        return None
    place = f"{TOOLS_DESCRIPTOR}, line {found.lineno}: {name}"
    try:
        value: Any = ast.literal_eval(found)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise Invalid(f"{place} must be a list of dictionaries of plain values, without names or calls.") from error
    try:
        specs = _SPECS.validate_python(value)
    except ValidationError as error:
        raise Invalid(f"{place}: {'; '.join(explain_errors(error))}.") from error
    if twice := [spec.alias for spec in specs if [each.alias for each in specs].count(spec.alias) > 1]:
        raise Invalid(f"{place}: two entries have the alias {twice[0]!r}.")
    return specs


@dataclass(frozen=True, slots=True)
class OfferedServer:
    """A server whose tools an agent is offered under an alias. `owner` is the bundle's id, or empty for the
    operator's."""

    alias: str
    server: McpServer
    owner: str = ""


def choose_servers(
    own: Mapping[str, McpServer],
    operators: Mapping[str, McpServer],
    specs: Sequence[McpToolSpec] | None,
    owner: str,
    *,
    is_default: bool = False,
) -> tuple[OfferedServer, ...]:
    """The servers of the agent `owner`: those that `specs` name, among its own and the operator's; without `specs` all
    its own, and if it is the default agent also the operator's.

    Raises Invalid if a named server is not defined.
    """
    if specs is None:
        others = {alias: server for alias, server in operators.items() if is_default and alias not in own}
        return (
            *(OfferedServer(alias, server, owner) for alias, server in own.items()),
            *(OfferedServer(alias, server) for alias, server in others.items()),
        )
    chosen: list[OfferedServer] = []
    for spec in specs:
        server = own.get(spec.server_id) or operators.get(spec.server_id)
        if server is None:
            known = ", ".join(sorted({*own, *operators})) or "none"
            raise Invalid(
                f"MCP_TOOL_SPECS names the server {spec.server_id!r}, which is not defined. Define "
                f"[mcp.{spec.server_id}] in bundle.toml; defined are: {known}."
            )
        if ALL not in spec.tools:
            allowed = tuple(tool for tool in spec.tools if server.offers(tool))
            if refused := set(spec.tools) - set(allowed):
                raise Invalid(f"[mcp.{spec.server_id}] does not allow the tool {min(refused)!r} of MCP_TOOL_SPECS.")
            server = server.model_copy(update={"tools": allowed})
        chosen.append(OfferedServer(spec.alias, server, owner if spec.server_id in own else ""))
    return tuple(chosen)
