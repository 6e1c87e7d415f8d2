"""The part of the escape battery that requests addresses of this machine and its network through the web tools."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from ipaddress import ip_address
from typing import Final

from chat_proc.sandbox.port import RunResult
from chat_proc.selftest.trials import Finding, Trial, find_for
from chat_proc.tools.web.client import WEB_PORTS, Address, AddressGuard, WebClient, is_public
from everturn.core.errors import EverturnError
from everturn.core.ids import TurnId
from everturn.execution.messages import Capability, GatewayCall, ToolGrant, ToolReply

WEB: Final = "web tools"
_TOOL: Final = "web_tools.web_fetch"
_SITE: Final = "127.0.0.77"
"""Simulates a server of the public internet: the guard accepts it, and it redirects to a forbidden address."""
_FETCH_S: Final = 5.0
_TURN: Final = TurnId("turn_selftest")

_URLS: Final = {
    "fetch from this machine": "http://127.0.0.1:{port}/",
    "fetch from this machine by its name": "http://localhost:{port}/",
    "fetch by a short address": "http://127.1:{port}/",
    "fetch by a decimal address": "http://2130706433:{port}/",
    "fetch by a hexadecimal address": "http://0x7f000001:{port}/",
    "fetch by an octal address": "http://0177.0.0.1:{port}/",
    "fetch by the unspecified address": "http://0.0.0.0:{port}/",
    "fetch by IPv6": "http://[::1]:{port}/",
    "fetch by an IPv4-mapped address": "http://[::ffff:127.0.0.1]:{port}/",
    "fetch by an IPv4-mapped address in hexadecimal": "http://[::ffff:7f00:1]:{port}/",
    "fetch by a NAT64 address": "http://[64:ff9b::7f00:1]:{port}/",
    "fetch with a user name in the address": "http://example.org@127.0.0.1:{port}/",
    "fetch with a backslash": "http://example.org\\@127.0.0.1:{port}/",
    "fetch by an address with non-ASCII digits": "http://①②⑦.0.0.1:{port}/",
    "fetch the metadata of a cloud": "http://169.254.169.254/latest/meta-data/",
    "fetch from a private network": "http://10.0.0.1/",
    "fetch a file": "file:///etc/passwd",
    "fetch by another scheme": "gopher://127.0.0.1:{port}/",
    "fetch from a port that is not a web port": "http://" + _SITE + ":22/",
    "be redirected to this machine": "http://site.test:{site}/to-host",
    "be redirected to this machine in two steps": "http://site.test:{site}/to-self",
    "fetch by a name that changes its address": "http://changing.test:{port}/",
}
_PROGRAM: Final = """
for name, url in {urls!r}:
    try: print(name, "=>", "GOT", str(await web_tools.web_fetch(url=url))[:60])
    except Exception as error: print(name, "=>", str(error).replace("\\n", " ")[:120])
"""


class Site:
    """Two servers on this machine: one must never be reached, the other redirects to it."""

    def __init__(self) -> None:
        self.reached = 0
        self.port = 0
        self.site_port = 0
        self._asked = 0

    async def serve_host(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Count connections."""
        self.reached += 1
        writer.close()

    async def serve_site(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Redirect to the other server, directly or through itself."""
        with contextlib.closing(writer):
            head = await reader.readline()
            inner = b"to-host" if b"to-self" in head else b""
            place = b"http://site.test:%d/to-host" % self.site_port if inner else b"http://127.0.0.1:%d/" % self.port
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()

    async def resolve(self, host: str, port: int, turn_id: TurnId) -> Sequence[str]:
        """The machine's resolver, with two extra names for the battery."""
        if host == "site.test":
            return [_SITE]
        if host == "changing.test":
            self._asked += 1
            return [_SITE if self._asked == 1 else "127.0.0.1"]
        answers = await asyncio.get_running_loop().getaddrinfo(host, port)
        return [str(answer[4][0]) for answer in answers]

    def build_client(self) -> WebClient:
        """The platform's own client and guard, except that one address counts as public."""
        guard = AddressGuard(self.resolve, is_allowed=_is_allowed, ports={*WEB_PORTS, self.port, self.site_port})
        return WebClient(guard, timeout_s=_FETCH_S)


@contextlib.asynccontextmanager
async def open_site() -> AsyncGenerator[Site]:
    """Both servers, on free ports."""
    site = Site()
    host = await asyncio.start_server(site.serve_host, "127.0.0.1", 0)
    public = await asyncio.start_server(site.serve_site, _SITE, 0)
    site.port, site.site_port = host.sockets[0].getsockname()[1], public.sockets[0].getsockname()[1]
    async with host, public:
        yield site


def list_urls(site: Site) -> list[tuple[str, str]]:
    """Name and address of each attempt."""
    return [(name, url.format(port=site.port, site=site.site_port)) for name, url in _URLS.items()]


def build_web_trial(site: Site) -> Trial:
    """All addresses in one program; calls are answered by the tool's real client."""
    client = site.build_client()

    async def fetch(call: GatewayCall) -> ToolReply:
        try:
            page = await client.fetch(str(call.arguments["url"]), _TURN)
        except EverturnError as refusal:
            return ToolReply(call.id, False, None, "tool_error", str(refusal))
        return ToolReply(call.id, True, page.url)

    def judge(result: RunResult) -> Iterable[Finding]:
        answers = dict(line.split(" => ", 1) for line in result.user_out_tail.splitlines() if " => " in line)
        for name in (name for name in _URLS if name in answers):
            yield find_for(WEB, name, answers[name] if answers[name].startswith("GOT") else "", answers[name])
        reached = f"{site.reached} connections came" if site.reached else ""
        yield find_for(WEB, "reach a server of this machine", reached, "no connection came")

    names = (*_URLS, "reach a server of this machine")
    return Trial(
        attempts=tuple((WEB, name) for name in names),
        program=_PROGRAM.format(urls=list_urls(site)),
        judge=judge,
        timeout_s=60.0,
        capability=Capability((ToolGrant(_TOOL),)),
        call_tool=fetch,
    )


def _is_allowed(address: Address) -> bool:
    return address == ip_address(_SITE) or is_public(address)
