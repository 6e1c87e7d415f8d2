"""Whether who opened a stream would still be let in: asked again every so often while it is open."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from everturn.errors import Unavailable
from ingress.auth.callers import Caller
from ingress.errors import ProblemError

ASK_TIMEOUT_S = 1.0
"""Events don't wait longer than this for the answer; who can't be asked about stays until the next time."""


@dataclass(frozen=True, slots=True)
class Recheck:
    """How the streams of a process ask: `check` raises a problem for a caller who would be refused now."""

    check: Callable[[Caller], Awaitable[None]]
    every_s: float
    monotonic: Callable[[], float]

    def begin(self, caller: Caller) -> "StreamStanding":
        """The standing of a stream that opens now."""
        return StreamStanding(partial(self.check, caller), every_s=self.every_s, monotonic=self.monotonic)


_log = structlog.get_logger(__name__)


class StreamStanding:
    """Owns the time of the next question about one stream's caller."""

    def __init__(
        self, recheck: Callable[[], Awaitable[None]], *, every_s: float, monotonic: Callable[[], float]
    ) -> None:
        """`recheck` raises a problem for a caller who would be refused now."""
        self._recheck = recheck
        self._every_s = every_s
        self._monotonic = monotonic
        self._due = monotonic() + every_s

    async def holds(self) -> bool:
        """False once the caller was refused; True also while it is not yet time to ask."""
        if self._monotonic() < self._due:
            return True
        self._due = self._monotonic() + self._every_s
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                await self._recheck()
        except ProblemError as refusal:
            _log.info("a stream's caller is not let in any more", why=refusal.detail)
            return False
        except (Unavailable, TimeoutError) as error:
            _log.info("a stream's caller could not be checked", error=str(error))
        return True
