"""The WebSocket connection of a server, without a network."""

import asyncio

from starlette.types import Message

from ingress.admission.limits import BodyHold
from ingress.errors import ProblemError
from ingress.sockets.websocket import REFUSAL_KEY, SIZE_KEY


class FakeWebSocket:
    """Both what a connection calls, and its client. The client reads unless `writable` is cleared."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.incoming.put_nowait({"type": "websocket.connect"})
        self.sent: list[Message] = []
        self.writable = asyncio.Event()
        self.writable.set()
        self.aborted = asyncio.Event()
        self.hold: BodyHold | None = None
        self.receiving_s = 0.0
        self.transport = self

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "websocket.close":
            self.leave()

    def allow(self, max_bytes: int, hold: BodyHold) -> None:
        self.hold = hold

    def abort(self) -> None:
        self.aborted.set()
        self.leave()

    def say(self, *frames: str | bytes | ProblemError) -> None:
        """Send frames, which are counted as by the server. A problem stands for an attachment without room."""
        for frame in frames:
            if isinstance(frame, ProblemError):
                said: Message = {"bytes": b"", SIZE_KEY: 0, REFUSAL_KEY: frame}
            else:
                size = len(frame) if self.hold else 0
                if self.hold:
                    self.hold.grow(size)
                said = {"text" if isinstance(frame, str) else "bytes": frame, SIZE_KEY: size}
            self.incoming.put_nowait({"type": "websocket.receive", **said})

    def leave(self) -> None:
        """The connection is lost, so nothing is written any more."""
        self.writable.set()
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})

    def texts(self) -> list[str]:
        """What the client got."""
        return [message["text"] for message in self.sent if message["type"] == "websocket.send"]

    def codes(self) -> list[int]:
        """The close codes."""
        return [message["code"] for message in self.sent if message["type"] == "websocket.close"]
