"""Sending single requests: credentials, timeouts, and retries where they are safe."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from everturn_client.answers import build_problem, read_body
from everturn_client.backoff import Backoff, Timings
from everturn_client.errors import BadInput, ProblemError, Unreachable

_RETRYABLE = frozenset({429, 502, 503, 504})
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)
_UNREACHABLE = (*_NOT_SENT, httpx2.NetworkError, httpx2.RemoteProtocolError)
"""No connection, or a broken one, as while a server restarts."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})
_MAX_IDLE = 20
"""Idle connections that are kept for later requests, per kind."""


@dataclass(frozen=True, slots=True)
class Connections:
    """How many connections to the server can be open at once: `calls` for requests and downloads, `streams` for
    followed conversations. Neither uses connections of the other. A request without a free connection waits up to
    `Timings.connect_s`."""

    calls: int = 100
    streams: int = 100


class Requests:
    """Sends requests of one user to one server. Owns the connections.

    `report_unreachable` is called once per request that has to wait for the server, with the reason.
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
        headers = _build_headers(token, dev_user)
        self._timings = timings
        self._random = random
        self._report_unreachable = report_unreachable
        # A proxy from the environment must not be used for a server on this machine.
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
        """For event streams, which are long-lived: even when all of them are in use, requests are still answered."""

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
        """Send one request and read its response. Retries GETs, repeatable requests, and those with an idempotency key.

        A request that never reached the server is retried in any case, within `Timings.reconnect_s`. Raises
        ProblemError for an error response, Unreachable when there is none.
        """
        headers = {"idempotency-key": key} if key else {}
        tries = self._begin(may_repeat=method == "GET" or is_repeatable or key is not None, has_key=key is not None)
        while True:
            try:
                async with self.http.stream(
                    method, path, params=params, json=json, files=parts, headers=headers
                ) as response:
                    await _check_good(response)
                    return await read_body(response)
            except (httpx2.TransportError, ProblemError) as error:
                await tries.wait_after(error)

    async def load_any(self, path: str) -> bytes:
        """The body of one GET, whatever its status is. Raises Unreachable."""
        try:
            async with self.http.stream("GET", path) as response:
                return await read_body(response)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, params: Mapping[str, Any]
    ) -> AsyncGenerator[httpx2.Response, None]:
        """Open one successful response, to be read as it arrives; redirects to other servers get no token.

        Retries and raises as `send`, until the response begins.
        """
        tries = self._begin(may_repeat=method == "GET", has_key=False)
        while True:
            async with AsyncExitStack() as stack:
                try:
                    response = await stack.enter_async_context(
                        self.http.stream(method, path, params=params, follow_redirects=True)
                    )
                    await _check_good(response)
                except (httpx2.TransportError, ProblemError) as error:
                    await stack.aclose()
                    await tries.wait_after(error)
                    continue
                try:
                    yield response
                except httpx2.TransportError as error:
                    raise self._unreachable(error) from error
                return

    def _begin(self, *, may_repeat: bool, has_key: bool) -> "_Attempts":
        return _Attempts(
            self._timings,
            self._random,
            may_repeat=may_repeat,
            has_key=has_key,
            unreachable=self._unreachable,
            report_unreachable=self._report_unreachable,
        )

    def _unreachable(self, error: httpx2.TransportError) -> Unreachable:
        return Unreachable(f"{self.http.base_url}: {str(error) or type(error).__name__}")


class _Attempts:
    """The attempts of one request: whether and when it is retried after an error."""

    def __init__(
        self,
        timings: Timings,
        random: Callable[[], float],
        *,
        may_repeat: bool,
        has_key: bool,
        unreachable: Callable[[httpx2.TransportError], Unreachable],
        report_unreachable: Callable[[Unreachable], None] | None,
    ) -> None:
        self._attempts = timings.attempts if may_repeat else 1
        self._away = _UNREACHABLE if may_repeat else _NOT_SENT
        self._has_key = has_key
        self._backoff = Backoff(timings, random)
        self._now = asyncio.get_running_loop().time
        self._deadline = self._now() + timings.reconnect_s
        self._unreachable = unreachable
        self._report_unreachable = report_unreachable
        self._count = 0
        self._waited = 0
        """Attempts while the server was unreachable. It may not be ready at once when it returns, so they don't
        count."""
        self._was_sent = False

    async def wait_after(self, error: httpx2.TransportError | ProblemError) -> None:
        """Return when the request can be retried; otherwise raise the error, or Unreachable instead of it."""
        self._count += 1
        asked_s: float | None = None
        if isinstance(error, ProblemError):
            self._check_again_later(error)
            asked_s = error.retry_after_s
        else:
            self._check_waits(error)
        await asyncio.sleep(self._backoff.next_delay_s(asked_s))

    def _check_again_later(self, error: ProblemError) -> None:
        status = error.problem.status
        # A retried submission gets a conflict while an earlier attempt of its own is still running.
        is_own_earlier_attempt = status == 409 and self._has_key and self._was_sent
        if self._count - self._waited >= self._attempts or not (status in _RETRYABLE or is_own_earlier_attempt):
            raise error
        # The attempt may still be running, behind a proxy or in the database.
        self._was_sent = self._was_sent or status >= 500

    def _check_waits(self, error: httpx2.TransportError) -> None:
        self._was_sent = self._was_sent or not isinstance(error, _NOT_SENT)
        is_unreachable = isinstance(error, self._away)
        waits = is_unreachable and self._now() < self._deadline
        if not waits and (self._count if is_unreachable else self._count - self._waited) >= self._attempts:
            raise self._unreachable(error) from error
        self._waited += waits
        # The first failure may be a connection that the server has closed in the meantime.
        if waits and self._waited == 2 and self._report_unreachable:
            self._report_unreachable(self._unreachable(error))


def _build_headers(token: str | None, dev_user: str | None) -> dict[str, str]:
    """Spaces around a value are not part of it. Raises BadInput for what no header can carry; the message shows no part
    of a token."""
    headers: dict[str, str] = {}
    for header, name, scheme, given in (
        ("authorization", "token", "Bearer ", token),
        ("x-dev-user", "user name", "", dev_user),
    ):
        value = (given or "").strip(" ")
        if value and not (value.isascii() and value.isprintable()):
            raise BadInput(
                f"The {name} contains a line break, another control character or a character that is not ASCII. "
                "Check that you copied the whole value and nothing else."
            )
        if value:
            headers[header] = scheme + value
    return headers


async def _check_good(response: httpx2.Response) -> None:
    if not response.is_success:
        raise build_problem(response, await read_body(response))
