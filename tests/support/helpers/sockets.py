"""Clients of Socket.IO: an official one that keeps what it gets, and the WebSocket beneath it."""

import asyncio
from typing import Any

import aiohttp
import pytest
import socketio
from bad_input.sockets import Wire

ROUTE = "/socket.io/?EIO=4&transport=websocket"
WAIT_S = 15


class SocketClient:
    """An official Python client that keeps what it gets."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sio = socketio.AsyncClient(reconnection=False)
        self.events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.refusal: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sio.on("*", self._keep)
        self.sio.on("connect_error", self._keep_refusal)

    async def _keep(self, name: str, data: dict[str, Any]) -> None:
        self.events.put_nowait((name, data))

    async def _keep_refusal(self, data: Any) -> None:
        if not self.refusal.done():
            self.refusal.set_result(data)

    async def connect(self, *, headers: dict[str, str] | None = None, **auth: Any) -> "SocketClient":
        await self.sio.connect(
            self.url, headers=headers or {}, auth=auth or None, transports=["websocket"], wait_timeout=WAIT_S
        )
        return self

    async def refused(self, **how: Any) -> dict[str, Any]:
        """Connect in vain; the problem."""
        with pytest.raises(socketio.exceptions.ConnectionError):
            await self.connect(**how)
        return (await asyncio.wait_for(self.refusal, WAIT_S))["data"]

    async def call(self, name: str, payload: Any) -> dict[str, Any]:
        return await self.sio.call(name, payload, timeout=WAIT_S)

    async def next(self) -> tuple[str, dict[str, Any]]:
        return await asyncio.wait_for(self.events.get(), WAIT_S)

    async def until(self, name: str) -> dict[str, Any]:
        """The next event of this name; those before it are dropped."""
        while True:
            found, data = await self.next()
            if found == name:
                return data

    async def gone(self) -> None:
        await asyncio.wait_for(self.sio.wait(), WAIT_S)


class RawSocket:
    """A WebSocket, read frame by frame."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def join(self) -> "RawSocket":
        assert (await self.next()).startswith("0{")
        await self.socket.send_str("40{}")
        assert (await self.next()).startswith("40{")
        assert (await self.next()).startswith('42["session_info"')
        return self

    async def send(self, *frames: str | bytes | Wire) -> None:
        """Texts, attachments, and bytes past all framing."""
        for frame in frames:
            match frame:
                case str():
                    await self.socket.send_str(frame)
                case bytes():
                    await self.socket.send_bytes(frame)
                case Wire(raw):
                    self.socket._writer.transport.write(raw)

    async def send_bytes_as_text(self, data: bytes) -> None:
        """A text frame of bytes that need not be UTF-8."""
        await self.socket._writer.send_frame(data, aiohttp.WSMsgType.TEXT)

    async def next(self) -> str:
        return await self.socket.receive_str(timeout=15)

    async def closed(self) -> int:
        """The close code; what comes before is dropped."""
        while (message := await self.socket.receive(timeout=15)).type is aiohttp.WSMsgType.TEXT:
            continue
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR), message
        return self.socket.close_code or 1006
