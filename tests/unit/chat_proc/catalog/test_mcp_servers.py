"""How authors and operators describe MCP servers, and the messages about mistakes."""

import pytest
from pydantic import ValidationError

from chat_proc.catalog.mcp_servers import (
    McpServer,
    McpToolSpec,
    choose_servers,
    fill_template,
    find_references,
    read_tool_specs,
)
from everturn.core.errors import Invalid
from everturn.turns.model import Effect

CRM = McpServer(url="https://crm.example/mcp")
CLIENT = {"grant": "client_credentials", "client_id": "everturn", "client_secret": "${b:secret}"}
PERSONAL = {"grant": "authorization_code", "title": "Example Mail"}
FILES = McpServer(command="files-server", tools=("read", "write"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "set either url or command"),
        ({"url": "https://a.example/mcp", "command": "x"}, "set either url or command"),
        ({"url": "ftp://a.example"}, "https://host:port/path"),
        ({"url": "https://user:secret@a.example/"}, "give secrets in headers"),
        ({"url": "https://a.example", "args": ["x"]}, "args and env belong to a server with a command"),
        ({"command": "x", "headers": {"X-Team": "a"}}, "headers belong to a server with a url"),
        ({"url": "https://a.example", "headers": {"Authorization": "Bearer abc"}}, "by reference"),
        ({"url": "https://a.example", "headers": {"Host": "b.example"}}, "Host is set by the connection"),
        ({"url": "https://a.example", "headers": {"X": "${DATABASE_PASSWORD}"}}, "begins with MCP_"),
        ({"url": "https://a.example", "headers": {"X": "a\r\nY: b"}}, "should match pattern"),
        ({"url": "https://a.example", "oauth": CLIENT}, "set either issuer or token_url"),
        ({"url": "https://a.example", "oauth": {**CLIENT, "grant": "password"}}, "client_credentials"),
        ({"url": "https://a.example", "oauth": {"grant": "authorization_code"}}, "title"),
        ({"url": "https://a.example", "oauth": {**PERSONAL, "title": "a\nb"}}, "should match pattern"),
        ({"url": "https://a.example", "oauth": {**PERSONAL, "issuer": "login.example"}}, "issuer: write it as"),
        (
            {"url": "https://a.example", "oauth": {**PERSONAL, "client_id": "x", "client_secret": "${b:secret}"}},
            "client_secret needs issuer and client_id",
        ),
        ({"url": "https://a.example", "oauth": PERSONAL, "effects": {"send": "pure"}}, "about args.name of call_tool"),
        (
            {"url": "https://a.example", "oauth": PERSONAL, "requires_approval": ["send"]},
            "about args.name of call_tool",
        ),
        ({"command": "x", "oauth": PERSONAL}, "oauth belongs to a server with a url"),
        ({"url": "https://a.example", "oauth": {**CLIENT, "issuer": "login.example"}}, "issuer: write it as https://"),
        ({"command": "x", "oauth": {**CLIENT, "issuer": "https://b.example"}}, "oauth belongs to a server with a url"),
        (
            {"url": "https://a.example", "oauth": {**CLIENT, "client_secret": "s3cret", "issuer": "https://b.example"}},
            "by reference",
        ),
        (
            {
                "url": "https://a.example",
                "headers": {"Authorization": "Bearer ${b:token}"},
                "oauth": {**CLIENT, "issuer": "https://b.example"},
            },
            "Authorization is set by oauth",
        ),
        ({"command": "x", "env": {"A=B": "1"}}, "is not the name of a variable"),
        ({"command": "x", "efects": {}}, "Extra inputs are not permitted"),
        (
            {"command": "x", "tools": ["add"], "requires_approval": ["ad"]},
            "requires_approval: 'ad' is not one of tools",
        ),
        ({"command": "x", "tools": ["add"], "effects": {"ad": "pure"}}, "effects: 'ad' is not one of tools: add"),
        ({"command": "x", "effects": {"a": "harmless"}}, "'pure', 'idempotent' or 'irreversible'"),
    ],
)
def test_a_wrong_server_is_rejected_with_the_reason(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        McpServer.model_validate(fields)


def test_secrets_are_filled_in_by_reference() -> None:
    server = McpServer(url="https://a.example", headers={"Authorization": "Bearer ${b:crm.token}", "X": "${MCP_X_KEY}"})
    values = {"b:crm.token": "s3cret", "MCP_X_KEY": "k"}
    assert [fill_template(text, values.get) for text in server.headers.values()] == ["Bearer s3cret", "k"]
    assert find_references("${b:crm.token} ${MCP_X_KEY}") == ["b:crm.token", "MCP_X_KEY"]
    with pytest.raises(Invalid, match=r"The secret b:crm.token is not set"):
        fill_template("${b:crm.token}", {}.get)


def test_approval_and_effects_are_by_tool() -> None:
    server = McpServer(command="x", requires_approval=("send",), effects={"send": Effect.IDEMPOTENT}, tools=("send",))
    assert (server.asks_for("send"), server.asks_for("read")) == (True, False)
    assert server.find_missing(["read"]) == [("tools", "send"), ("requires_approval", "send"), ("effects", "send")]
    assert McpServer(command="x", requires_approval=True).asks_for("anything")


def test_the_descriptor_is_read_as_data() -> None:
    source = b"""
import os
TOOLS_SPECS = [{"module": "x", "alias": y}]
MCP_TOOL_SPECS: list[dict] = [
    {"server_id": "crm", "alias": "customers", "tools": ["find"]},
    {"server_id": "files", "alias": "files"},
]
"""
    assert read_tool_specs(source) == (
        McpToolSpec(server_id="crm", alias="customers", tools=("find",)),
        McpToolSpec(server_id="files", alias="files"),
    )
    assert read_tool_specs(b"TOOLS_SPECS = []") is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"MCP_TOOL_SPECS = [\n", "line 1: '.' was never closed"),
        (b"\nMCP_TOOL_SPECS = load()", "line 2: MCP_TOOL_SPECS must be a list of dictionaries of plain values"),
        (b'MCP_TOOL_SPECS = [{"server_id": "crm"}]', r"0\.alias: is missing|alias"),
        (b'MCP_TOOL_SPECS = [{"server_id": "crm", "alias": "a", "tool": []}]', "tool"),
        (b'MCP_TOOL_SPECS = [{"server_id": "a", "alias": "x"}, {"server_id": "b", "alias": "x"}]', "the alias 'x'"),
        (b"MCP_TOOL_SPECS = " + b"(" * 5_000 + b")" * 5_000, "tools_descriptor.py"),
        (b"#" * 300_000, "at most 262144 are allowed"),
        (b"a\0b", "tools_descriptor.py"),
    ],
)
def test_a_wrong_descriptor_is_rejected_with_its_line(source: bytes, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        read_tool_specs(source)


def test_without_specs_an_agent_has_its_own_servers() -> None:
    chosen = choose_servers({"files": FILES}, {"crm": CRM}, None, "desk")
    assert [(each.alias, each.owner) for each in chosen] == [("files", "desk")]
    chosen = choose_servers({"files": FILES}, {"crm": CRM, "files": CRM}, None, "desk", is_default=True)
    assert [(each.alias, each.owner) for each in chosen] == [("files", "desk"), ("crm", "")]


def test_specs_choose_among_own_and_the_operators_servers() -> None:
    specs = (
        McpToolSpec(server_id="crm", alias="customers"),
        McpToolSpec(server_id="files", alias="files", tools=("read",)),
    )
    chosen = choose_servers({"files": FILES}, {"crm": CRM}, specs, "desk")
    assert [(each.alias, each.owner, each.server.tools) for each in chosen] == [
        ("customers", "", ("*",)),
        ("files", "desk", ("read",)),
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (McpToolSpec(server_id="erp", alias="erp"), r"server 'erp', which is not defined.*crm, files"),
        (McpToolSpec(server_id="files", alias="files", tools=("delete",)), "does not allow the tool 'delete'"),
    ],
)
def test_specs_can_not_name_what_is_not_offered(spec: McpToolSpec, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        choose_servers({"files": FILES}, {"crm": CRM}, [spec], "desk")
