"""One conversation's events as one endless sequence, over any number of connections."""

import asyncio
import random as randomness
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import httpx2
from pydantic import ValidationError

from everturn.events.cursor import ORIGIN, try_parse_cursor
from everturn.events.model import (
    EVENT_TYPES,
    Envelope,
    Ready,
    ServerShutdown,
    StreamSnapshot,
    event_name,
    parse_envelope,
)
from everturn_client.answers import build_problem, read_body
from everturn_client.backoff import Backoff, Timings
from everturn_client.errors import BadAnswer, ProblemError, TooMuch, Unreachable

MAX_EVENT_BYTES = 32 * 1024 * 1024
_KNOWN = frozenset(event_name(kind) for kind in EVENT_TYPES)
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})


class EventStream:
    """Follows one conversation; owns the cursor. Use it once.

    Reconnects with Last-Event-ID after a broken or ended connection, silence, 429 and 5xx. Raises ProblemError for
    permanent errors (401, 404 and the like), Unreachable after `give_up_s` without a single byte, and TooMuch when it
    can't begin because `http` has no connection left; a stream that has begun waits for one.
    """

    def __init__(
        self,
        http: httpx2.AsyncClient,
        path: str,
        *,
        after: str | None = None,
        timings: Timings | None = None,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self._http = http
        self._path = path
        self._cursor = after
        self._timings = timings or Timings()
        self._backoff = Backoff(self._timings, random)
        self._asked_s: float | None = None
        self._alive_at = 0.0
        self._has_begun = False

    async def run(self) -> AsyncGenerator[Envelope, None]:
        """All events after the cursor, each id once. Close it to end the connection."""
        self._alive_at = _now()
        while True:
            failure: Exception | None = None
            try:
                async with aclosing(self._run_connection()) as envelopes:
                    async for envelope in envelopes:
                        yield envelope
            except httpx2.TransportError as error:
                if isinstance(error, httpx2.PoolTimeout) and not self._has_begun:
                    raise TooMuch("All stream connections are in use; close one or allow more.") from error
                failure = error
            except ProblemError as error:
                if error.problem.status not in _TRANSIENT:
                    raise
                failure, self._asked_s = error, error.retry_after_s
            if _now() - self._alive_at > self._timings.give_up_s:
                why = f" The last answer was: {failure}" if isinstance(failure, ProblemError) else ""
                raise Unreachable(f"Nothing was received for {self._timings.give_up_s:.0f} s.{why}") from failure
            await asyncio.sleep(self._backoff.next_delay_s(self._asked_s))
            self._asked_s = None

    async def _run_connection(self) -> AsyncGenerator[Envelope, None]:
        headers = {"last-event-id": self._cursor} if self._cursor else {}
        limits = httpx2.Timeout(self._timings.connect_s, read=self._timings.silence_s)
        async with self._http.sse(
            self._path, headers=headers, timeout=limits, max_event_size=MAX_EVENT_BYTES
        ) as connection:
            self._has_begun = True
            response = connection.response
            if response.status_code != 200:
                raise build_problem(response, await read_body(response))
            # The standard allows this encoding only, with or without a byte order mark.
            response.encoding = "utf-8-sig"
            silent_s = 0.0
            try:
                async for event in connection:
                    if event.retry is not None and self._asked_s is None:
                        self._asked_s = max(0, event.retry) / 1000
                    envelope = self._take(event)
                    if envelope:
                        yield envelope
            except httpx2.ReadTimeout:
                silent_s = self._timings.silence_s
                raise
            except httpx2.SSEError as error:
                # Before the first byte, the content type is wrong, as on a page of a proxy. That can pass.
                if response.num_bytes_downloaded:
                    raise TooMuch(f"One event is larger than {MAX_EVENT_BYTES} bytes.") from error
                raise
            finally:
                # Not per event: a heartbeat is none.
                if response.num_bytes_downloaded:
                    self._alive_at = _now() - silent_s

    def _take(self, event: httpx2.ServerSentEvent) -> Envelope | None:
        # The library also reports events without data, such as a lone `retry`.
        if event.event not in _KNOWN or not event.data:
            return None
        try:
            envelope = parse_envelope(event.data)
        except ValidationError as error:
            raise BadAnswer(f"The event {event.event} can't be read.") from error
        if isinstance(envelope.data, StreamSnapshot):
            self._cursor = envelope.data.state.cursor
        elif envelope.id and not self._advance(envelope.id):
            return None
        # Not for Ready: a server that greets and dies in a loop must not be contacted faster and faster.
        if not isinstance(envelope.data, Ready):
            self._backoff.reset()
        if isinstance(envelope.data, ServerShutdown):
            self._asked_s = envelope.data.retry_ms / 1000
        return envelope

    def _advance(self, event_id: str) -> bool:
        cursor = try_parse_cursor(event_id)
        if cursor is None:
            raise BadAnswer("An event id does not have the form <fence>-<n>.")
        if cursor <= (try_parse_cursor(self._cursor or "") or ORIGIN):
            return False
        self._cursor = event_id
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
