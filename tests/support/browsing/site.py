"""A site of somebody else, whose page has a frame."""

import asyncio
from html import escape
from types import TracebackType
from typing import Self

from everturn_local.ports import LOOPBACK


class OtherSite:
    """An async context manager. It is reached by two names, which are two origins; only `allowed` may embed a chat."""

    def __init__(self) -> None:
        self.frame = ""
        """The attributes of the frame in its page."""
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def allowed(self) -> str:
        return f"http://localhost:{self._port}"

    @property
    def foreign(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    def show(self, url: str, more: str = "") -> None:
        """What its page shows from now on."""
        self.frame = f'src="{escape(url)}" {more}'

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._answer, LOOPBACK, 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        page = f"<!doctype html><title>Shop</title><h1>Shop</h1><iframe width=600 height=500 {self.frame}></iframe>"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\nConnection: close\r\n\r\n"
        writer.write((head + page).encode())
        await writer.drain()
        writer.close()
