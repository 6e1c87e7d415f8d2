"""A small web site for tests: it serves the given answers and records the requests."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field


@dataclass
class Answer:
    """The answer to a path. With `stalls` the body never ends; `repeats` are sent after it without an end."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    stalls: bool = False
    repeats: bytes = b""


@dataclass
class Site:
    """`pages` by path; `asked` are the received requests, each as its head and body."""

    port: int = 0
    pages: dict[str, Answer] = field(default_factory=dict[str, Answer])
    asked: list[str] = field(default_factory=list[str])
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)

    def url(self, path: str, host: str = "site.test") -> str:
        return f"http://{host}:{self.port}{path}"

    def page(self, path: str, body: str | bytes, mime: str = "text/html", **headers: str) -> str:
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = Answer(data, headers={"Content-Type": mime, **headers})
        return self.url(path)

    def json(self, path: str, value: object, status: int = 200) -> str:
        self.pages[path] = Answer(json.dumps(value).encode(), status, {"Content-Type": "application/json"})
        return self.url(path, "127.0.0.1")

    def redirect(self, path: str, target: str) -> str:
        self.pages[path] = Answer(status=302, headers={"Location": target})
        return self.url(path)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
        self.asked.append(head + (await reader.readexactly(length)).decode())
        self.was_asked.set()
        answer = self.pages.get(head.split(" ")[1].partition("?")[0], Answer(status=404))
        sizes = {} if answer.repeats else {"Content-Length": str(len(answer.body) + answer.stalls)}
        headers = {**sizes, "Connection": "close", **answer.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {answer.status} X\r\n{lines}\r\n".encode() + answer.body)
        await writer.drain()
        with contextlib.suppress(ConnectionError):
            while answer.repeats and not writer.is_closing():
                writer.write(answer.repeats)
                await writer.drain()
        if answer.stalls:
            await reader.read()
        writer.close()


@contextlib.asynccontextmanager
async def open_site() -> AsyncGenerator[Site]:
    """A site on a free port of this machine."""
    site = Site()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
