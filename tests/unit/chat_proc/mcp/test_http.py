"""Which hosts the transport of MCP servers contacts, where it sends access tokens, whatever the SDK follows, and what
it costs to read replies."""

import ssl
import time
from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest

from chat_proc.mcp.http import HostRules, McpHttpTransport, TransportOptions


class Tokens:
    async def find(self, rejected: str | None = None) -> str:
        return "sesame"


def build_transport(tokens: Tokens | None = None) -> McpHttpTransport:
    async def resolve(*_: object) -> list[str]:
        return ["192.0.2.1"]

    options = TransportOptions(resolve, HostRules(), "test", ssl.create_default_context())
    return McpHttpTransport(options, "https://mcp.example/mcp", tokens)


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
    transport = build_transport(Tokens())
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


class Pieces(httpx2.AsyncByteStream):
    """A body whose pieces are all there already, as those of one read of a socket are."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def read(
    monkeypatch: pytest.MonkeyPatch, pieces: Sequence[bytes], kind: str = "text/event-stream"
) -> list[bytes]:
    """What the SDK gets of a reply, at once or one after another."""
    transport = build_transport()

    async def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"Content-Type": kind}, stream=Pieces(pieces))

    monkeypatch.setattr(transport, "_inner", httpx2.MockTransport(answer))
    request = httpx2.Request("POST", "https://mcp.example/mcp", content=b'{"method": "x", "id": 1}')
    response = await transport.handle_async_request(request)
    return [piece async for piece in response.aiter_raw()]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r\n", b"\r\n\n", b"\r\n\r"])
async def test_events_are_passed_on_when_they_end(monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    stream = b"id: 1" + end + b"id: 2" + end + b"id: 3"
    for size in (1, 2, 3, len(stream)):
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
        read_pieces = [piece.strip() for piece in await read(monkeypatch, pieces)]
        assert b"|".join(read_pieces).replace(b"\n\n", b"|") == b"id: 1|id: 2|id: 3"


async def test_tiny_pieces_cost_the_same_after_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    used_s: list[float] = []
    for size in (1_000, 3_000_000):
        begun_s = time.thread_time()
        await read(monkeypatch, [b"data: " + b"x" * size, *[b"y"] * 3_000, b"\n\n"])
        used_s.append(time.thread_time() - begun_s)
    assert used_s[1] < 10 * used_s[0], "what was read before is searched again"


VALUES = b'data: {"a": [' + b",".join([b"[]"] * 30_000) + b"]}"
TEXT = b'data: {"a": "' + b"[]," * 30_000 + b'"}'


@pytest.mark.parametrize(
    "other", [b': "', b'event: "', b'id: "', b'retry: "', b'x: "', b': \\"', b'data"', b'data: 1\n\n: "']
)
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
async def test_values_are_counted_in_what_is_parsed(monkeypatch: pytest.MonkeyPatch, other: bytes, end: bytes) -> None:
    async def read_event(*lines: bytes) -> list[bytes]:
        return await read(monkeypatch, [end.join((*lines, b"", b"")).replace(b"\n\n", end * 2)])

    for lines in ((VALUES,), (other, VALUES), (VALUES, other), (b'data: "', b"", VALUES)):
        with pytest.raises(httpx2.SSEError, match="more than 20000 values"):
            await read_event(*lines)
    for lines in ((TEXT,), (other, TEXT), (TEXT, other)):
        assert TEXT in b"".join(await read_event(*lines))


async def test_an_event_has_a_limited_number_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in (b"data:\n", b":\n", b"x\r\n"):
        with pytest.raises(httpx2.SSEError, match="more than 20000 lines"):
            await read(monkeypatch, [line * 20_002 + b"\n"])


async def test_events_are_read_in_the_alphabet_in_which_they_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = build_transport()

    async def answer(_: httpx2.Request) -> httpx2.Response:
        kind = {"Content-Type": "text/event-stream; charset=utf-7"}
        return httpx2.Response(200, headers=kind, stream=Pieces([b"data: +AFsAWw-\n\n"]))

    monkeypatch.setattr(transport, "_inner", httpx2.MockTransport(answer))
    async with httpx2.AsyncClient(transport=transport) as client:
        response = await client.post("https://mcp.example/mcp", content=b'{"method": "x", "id": 1}')
    assert response.text == "data: +AFsAWw-\n\n"
