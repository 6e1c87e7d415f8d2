"""A typed interface to the parts of python-socketio that are used here."""

import json
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol, cast

import socketio
from socketio.exceptions import ConnectionRefusedError
from starlette.types import Receive, Scope, Send

PING_INTERVAL_S = 25
PING_TIMEOUT_S = 20

_parsed: ContextVar[list[object] | None] = ContextVar("everturn.parsed", default=None)

_log = logging.getLogger("everturn.socketio")
# Below the level of errors it logs what it receives, including tokens.
_log.setLevel(logging.ERROR)


class Library(Protocol):
    """The sessions, pings and answers of Socket.IO clients."""

    def on(self, event: str, handler: Callable[..., Awaitable[Any]]) -> None: ...

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class ParsedJson:
    """The library's JSON module: reuses the data that were parsed to judge the frame.

    The library reads each frame in the task that received it, so the last value belongs to the current frame.
    """

    @staticmethod
    def dumps(value: object, **options: Any) -> str:
        return json.dumps(value, **options)

    @staticmethod
    def loads(text: str) -> Any:
        parsed = _parsed.get()
        if parsed is None or not text.startswith("["):
            return json.loads(text)
        _parsed.set(None)
        return parsed


def hand_over(parsed: list[object] | None) -> None:
    """Set the parsed data of the frame that the library reads next in this task; None when it has no event."""
    _parsed.set(parsed)


def build_library(*, max_bytes: int) -> Library:
    """A server for WebSocket only: long polling would need all requests of a client to reach the same node.

    Origins are checked before the library is called. No client manager is needed, because nothing is sent to rooms.
    """
    return cast(
        Library,
        socketio.AsyncServer(
            async_mode="asgi",
            transports=["websocket"],
            allow_upgrades=False,
            http_compression=False,
            cors_allowed_origins=[],
            monitor_clients=False,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            max_http_buffer_size=max_bytes,
            json=ParsedJson,
            logger=_log,  # pyright: ignore[reportArgumentType] a logger is taken too, as its documentation says
            engineio_logger=_log,
        ),
    )


def refuse_connection(message: str, data: dict[str, Any]) -> Exception:
    """The exception that a connect handler raises so that the client gets `data` in `connect_error`."""
    return ConnectionRefusedError(message, data)
