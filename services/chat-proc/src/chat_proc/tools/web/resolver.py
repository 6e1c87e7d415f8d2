"""Looks up host names in threads of its own.

A lookup of the operating system can't be cancelled: while a name server does not answer, it keeps its thread, even
after the caller has stopped waiting. In the threads that the whole worker shares, a page with a slow name server could
stall all turns. Here lookups only delay other lookups, and one turn never has all the threads.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from everturn.core.ids import TurnId

THREADS = 16
THREADS_PER_TURN = 5
"""As many as one call of `web_fetch` has addresses; further lookups of the turn wait."""

Resolve = Callable[[str, int, TurnId], Awaitable[Sequence[str]]]
"""The addresses of a host, for a port and a turn. Raises OSError or UnicodeError."""
Lookup = Callable[[str, int], Sequence[str]]


def look_up(host: str, port: int) -> Sequence[str]:
    """Ask the operating system; blocks for as long as its name servers take."""
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class _TurnLookups:
    """The lookups of one turn."""

    def __init__(self, limit: int) -> None:
        self.free = asyncio.Semaphore(limit)
        self.pending = 0
        """Those that wait or run; without any the turn is forgotten."""


class NameResolver:
    """Owns the threads, and counts the lookups of each turn in its event loop."""

    def __init__(
        self, lookup: Lookup = look_up, *, threads: int = THREADS, threads_per_turn: int = THREADS_PER_TURN
    ) -> None:
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="dns")
        self._threads_per_turn = threads_per_turn
        self._turns: dict[TurnId, _TurnLookups] = {}

    async def resolve(self, host: str, port: int, turn_id: TurnId) -> Sequence[str]:
        """The host's addresses. Waits while the turn has used up its threads: callers set a time limit."""
        lookups = self._turns.setdefault(turn_id, _TurnLookups(self._threads_per_turn))
        lookups.pending += 1
        try:
            await lookups.free.acquire()
        except asyncio.CancelledError:
            self._forget(turn_id, lookups)
            raise
        loop = asyncio.get_running_loop()

        def release() -> None:
            lookups.free.release()
            self._forget(turn_id, lookups)

        def end(_: Future[Sequence[str]]) -> None:
            # The event loop may be closed by the time a slow lookup ends.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(release)

        running = self._threads.submit(self._lookup, host, port)
        # The turn's share is returned when the thread is free, not when the caller stops waiting.
        running.add_done_callback(end)
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """Discard waiting lookups. Running ones end by themselves, and are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _forget(self, turn_id: TurnId, lookups: _TurnLookups) -> None:
        lookups.pending -= 1
        if not lookups.pending:
            del self._turns[turn_id]
