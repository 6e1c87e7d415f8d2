"""Which hosts the transport of MCP servers contacts, and where it sends access tokens, whatever the SDK follows."""

import ssl

import httpx2
import pytest

from chat_proc.mcp.http import HostRules, HttpWay, McpHttpTransport


class Tokens:
    async def find(self, rejected: str | None = None) -> str:
        return "sesame"


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        ("https://mcp.example/mcp", True),
        ("https://mcp.example:443/other", True),
        ("https://mcp.example:8443/mcp", False),
        ("http://mcp.example/mcp", False),
        ("https://evil.example/mcp", False),
        ("https://mcp.example.evil.example/mcp", False),
    ],
)
async def test_tokens_are_sent_to_the_origin_of_their_server_only(
    monkeypatch: pytest.MonkeyPatch, url: str, *, is_sent: bool
) -> None:
    async def resolve(*_: object) -> list[str]:
        return ["192.0.2.1"]

    way = HttpWay(resolve, HostRules(), "test", ssl.create_default_context())
    transport = McpHttpTransport(way, "https://mcp.example/mcp", Tokens())
    sent: list[httpx2.Request] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, stream=httpx2.ByteStream(b"{}"))

    monkeypatch.setattr(transport, "_inner", httpx2.MockTransport(answer))

    await transport.handle_async_request(httpx2.Request("POST", url, content=b'{"method": "x", "id": 1}'))

    assert [request.headers.get("Authorization") for request in sent] == ["Bearer sesame" if is_sent else None]


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("mcp.example", True),
        ("a.tools.example", True),
        ("tools.example", False),
        ("eviltools.example", False),
        ("a.mcp.example", False),
        ("evilmcp.example", False),
    ],
)
def test_allowed_hosts_are_whole_names(host: str, *, is_allowed: bool) -> None:
    assert HostRules(("mcp.example", "*.tools.example")).allows(host) is is_allowed
