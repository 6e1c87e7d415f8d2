"""The WebSocket protocol of this process: the server's own, with bounds on what a client can make it keep."""

import logging
from typing import Any, Protocol, cast

from starlette.types import Scope
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import Ping, Request

FIRST_MAX_BYTES = 65_536
"""How large a message may be before the application knows the client."""
_KEY = "everturn.line"


class Line(Protocol):
    """The connection below a WebSocket."""

    def allow(self, max_bytes: int) -> None:
        """From now on a message may have so many bytes."""
        ...

    def abort(self) -> None:
        """Cut the connection, whatever waits to be sent."""
        ...


class BoundedWebSocket(WSProtocol):
    """Takes small messages until the application allows larger ones, and answers pings only to who reads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # It would log each connection with its query.
        self.logger = logging.getLogger("everturn.websocket")
        self.logger.setLevel(logging.WARNING)
        self.buffer.max_length = FIRST_MAX_BYTES

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        cast(dict[str, Any], self.scope)[_KEY] = self

    def handle_ping(self, event: Ping) -> None:
        # A client that sends pings and never reads would fill the memory with our answers.
        if self.writable.is_set():
            super().handle_ping(event)

    def allow(self, max_bytes: int) -> None:
        self.buffer.max_length = max_bytes

    def abort(self) -> None:
        self.transport.abort()


def load_line(scope: Scope) -> Line:
    """The connection of a WebSocket scope that this process serves."""
    return cast(Line, scope[_KEY])
