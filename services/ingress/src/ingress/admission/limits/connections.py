"""How many connections there may be, and how long one may take to say what it wants: a protocol around uvicorn's own.

uvicorn waits for ever for the first byte and for the last header, and for the rest of a body that was refused.
"""

import asyncio
from functools import partial
from typing import Any, cast

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from everturn.model.problems import Problem, problem
from ingress.admission.metrics import IngressMetrics
from ingress.errors import PROBLEM_MIME

RETRY_AFTER_S = 5


class BoundedProtocol(H11Protocol):
    """Closes a connection that has no request at work `headers_s` after it was made or sent its first byte of one."""

    def __init__(
        self, *args: Any, max_connections: int, headers_s: float, metrics: IngressMetrics, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._max_connections = max_connections
        self._headers_s = headers_s
        self._metrics = metrics
        self._deadline: asyncio.TimerHandle | None = None
        self._refused = False
        self._heard = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            self._refused = True
            self._metrics.refusals.labels(reason="connections", role="none").inc()
            self._end(problem("unavailable", "The service can't do this right now", 503, "Too many are connected."))
            return
        self._arm()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._heard = True
        super().data_received(data)
        self._look()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._disarm()
        self._refused = True  # this object is not asked any more
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._disarm()
        self._heard = False
        if self.conn.their_state is h11.SEND_BODY:
            # The answer was a refusal; what is left of the body may not come for ever.
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _look(self) -> None:
        cycle = cast(RequestResponseCycle | None, self.cycle)  # none before the first request, whatever its type says
        if self._refused or (cycle is not None and not cycle.response_complete):
            self._disarm()
        elif self._deadline is None:
            self._arm()

    def _arm(self) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(self._headers_s, self._give_up)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        self._metrics.refusals.labels(reason="slow_headers", role="none").inc()
        if self._heard and self.conn.our_state is h11.IDLE:
            text = f"The headers were not complete after {self._headers_s:g} s."
            self._end(problem("too-slow", "The request did not come in time", 408, text))
        else:
            self.transport.close()

    def _end(self, answer: Problem) -> None:
        body = orjson.dumps(answer.model_dump(exclude_none=True))
        head = [
            f"HTTP/1.1 {answer.status} {answer.title}",
            f"Content-Type: {PROBLEM_MIME}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *([f"Retry-After: {RETRY_AFTER_S}"] if answer.status == 503 else []),
        ]
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.transport.close()


def bind_protocol(*, max_connections: int, headers_s: float, metrics: IngressMetrics) -> Any:
    """The protocol class for uvicorn's `http` option; it takes any callable that makes one."""
    return partial(BoundedProtocol, max_connections=max_connections, headers_s=headers_s, metrics=metrics)
