"""Sending single requests: credentials, time limits, and repeating what may be repeated."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx2

from everturn_client.answers import build_problem, read_body
from everturn_client.backoff import Backoff, Timings
from everturn_client.errors import ProblemError, Unreachable

_AGAIN_LATER = frozenset({429, 502, 503, 504})
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)
_AWAY = (*_NOT_SENT, httpx2.NetworkError, httpx2.RemoteProtocolError)
"""No connection, or one that broke: so it is while a server restarts."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})
_MAX_IDLE = 20
"""Connections that are kept for the next request, of each kind."""


@dataclass(frozen=True, slots=True)
class Connections:
    """How many connections to the server may be open at once: `calls` for requests and downloads, `streams` for
    conversations that are followed. Neither ever takes one of the other's. A request for which there is none waits up
    to `Timings.connect_s`."""

    calls: int = 100
    streams: int = 100


class Requests:
    """Sends requests of one user to one server. Owns the connections.

    `report_unreachable` is called once for a request that has to wait for the server, with the reason.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None,
        dev_user: str | None,
        timings: Timings,
        random: Callable[[], float],
        connections: Connections | None = None,
        report_unreachable: Callable[[Unreachable], None] | None = None,
    ) -> None:
        headers: dict[str, str] = {}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if dev_user:
            headers["x-dev-user"] = dev_user
        self._timings = timings
        self._random = random
        self._report_unreachable = report_unreachable
        # A proxy from the environment must not get in the way of a server on this machine.
        is_local = httpx2.URL(base_url).host in _LOOPBACK

        def open_pool(size: int) -> httpx2.AsyncClient:
            return httpx2.AsyncClient(
                base_url=base_url,
                headers=headers,
                timeout=httpx2.Timeout(timings.connect_s, read=timings.answer_s, write=timings.answer_s),
                limits=httpx2.Limits(max_connections=size, max_keepalive_connections=min(size, _MAX_IDLE)),
                trust_env=not is_local,
            )

        connections = connections or Connections()
        self.http = open_pool(connections.calls)
        self.streams = open_pool(connections.streams)
        """For event streams, which last: with as many of them as there is room for, requests are still answered."""

    async def aclose(self) -> None:
        try:
            await self.streams.aclose()
        finally:
            await self.http.aclose()

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        parts: Sequence[tuple[str, Any]] | None = None,
        key: str | None = None,
        is_repeatable: bool = False,
    ) -> bytes:
        """Send one request and read its answer. GETs, what is repeatable, and what has an idempotency key are repeated.

        What never reached the server is sent again in any case, within `Timings.reconnect_s`.
        Raises ProblemError for an answer that is an error, Unreachable when there is none.
        """
        headers = {"idempotency-key": key} if key else {}
        may_repeat = method == "GET" or is_repeatable or key is not None
        attempts = self._timings.attempts if may_repeat else 1
        backoff = Backoff(self._timings, self._random)
        now = asyncio.get_running_loop().time
        deadline, waited, was_sent = now() + self._timings.reconnect_s, 0, False
        for attempt in count(1):
            asked_s: float | None = None
            try:
                async with self.http.stream(
                    method, path, params=params, json=json, files=parts, headers=headers
                ) as response:
                    await _check_good(response)
                    return await read_body(response)
            except httpx2.TransportError as error:
                was_sent = was_sent or not isinstance(error, _NOT_SENT)
                is_away = isinstance(error, _AWAY if may_repeat else _NOT_SENT)
                waits = is_away and now() < deadline
                # A server that is back may not be ready at once, so the tries before it was back don't count.
                if not waits and (attempt if is_away else attempt - waited) >= attempts:
                    raise self._unreachable(error) from error
                waited += waits
                # A first failure may be a connection that the server has closed in the meantime.
                if waits and waited == 2 and self._report_unreachable:
                    self._report_unreachable(self._unreachable(error))
            except ProblemError as error:
                # A repeated submission meets an earlier try of its own, still at work, as a conflict.
                is_own_twin = error.problem.status == 409 and key is not None and was_sent
                if attempt - waited >= attempts or not (error.problem.status in _AGAIN_LATER or is_own_twin):
                    raise
                # The try may still be at work, behind a proxy or in the database.
                was_sent = was_sent or error.problem.status >= 500
                asked_s = error.retry_after_s
            await asyncio.sleep(backoff.next_delay_s(asked_s))
        raise Unreachable("No attempt is allowed.")

    async def load_any(self, path: str) -> bytes:
        """The body of one GET, whatever its status says. Raises Unreachable."""
        try:
            async with self.http.stream("GET", path) as response:
                return await read_body(response)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, params: Mapping[str, Any]
    ) -> AsyncGenerator[httpx2.Response, None]:
        """One good answer, read as it comes; redirects to other servers get no token. Raises as `send`."""
        try:
            async with self.http.stream(method, path, params=params, follow_redirects=True) as response:
                await _check_good(response)
                yield response
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: httpx2.TransportError) -> Unreachable:
        return Unreachable(f"{self.http.base_url}: {str(error) or type(error).__name__}")


async def _check_good(response: httpx2.Response) -> None:
    if not response.is_success:
        raise build_problem(response, await read_body(response))
