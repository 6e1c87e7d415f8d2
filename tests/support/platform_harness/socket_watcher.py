"""One client that follows a conversation with the official Socket.IO client, and folds what it sees."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import socketio

from everturn.events.model import parse_envelope
from platform_harness.watcher import Watcher, find_place

PAUSE_S = 0.05
ANSWER_LIMIT_S = 20


@dataclass
class SocketWatcher(Watcher):
    """Whenever its connection is lost, it connects again and goes on after the last event that it has seen."""

    url: str = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        last_id = self.after
        while True:
            last_id = await self._run_connection(last_id)
            self.reconnects += 1
            await asyncio.sleep(PAUSE_S)

    async def _run_connection(self, last_id: str | None) -> str | None:
        place = last_id
        socket = socketio.AsyncClient(reconnection=False)

        async def take(name: str, data: Any) -> None:
            nonlocal place
            if name not in ("session_info", "server_shutdown"):
                envelope = parse_envelope(json.dumps(data))
                self._take(envelope)
                place = find_place(envelope, place)

        socket.on("*", take)
        try:
            await socket.connect(self.url, transports=["websocket"], wait_timeout=ANSWER_LIMIT_S)
            payload = {"conversation_id": self.conversation_id} | ({"after": last_id} if last_id else {})
            answer = await socket.call("conv_subscribe", payload, timeout=ANSWER_LIMIT_S)
            assert answer["status"] == 200, answer
            await socket.wait()
        except socketio.exceptions.SocketIOError:
            pass  # it was cut while it connected
        finally:
            await socket.disconnect()
        return place
