"""Rechecks, at intervals, whether the caller of an open stream or socket is still allowed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from everturn.core.errors import Unavailable
from ingress.auth.callers import Caller
from ingress.errors import ProblemError

_log = structlog.get_logger(__name__)

ASK_TIMEOUT_S = 1.0
"""Events don't wait longer than this for a recheck; if it can't be completed, the caller stays until the next one."""


@dataclass(frozen=True, slots=True)
class Recheck:
    """How the streams and sockets of a process recheck: `check` raises a problem for a caller who would be rejected
    now."""

    check: Callable[[Caller], Awaitable[None]]
    every_s: float
    monotonic: Callable[[], float]

    def begin(self, caller: Caller) -> "CallerCheck":
        """Start the rechecks of a caller whose stream or socket opens now."""
        return CallerCheck(partial(self.check, caller), every_s=self.every_s, monotonic=self.monotonic)


class CallerCheck:
    """Owns the time of the next recheck of one caller."""

    def __init__(
        self, recheck: Callable[[], Awaitable[None]], *, every_s: float, monotonic: Callable[[], float]
    ) -> None:
        """`recheck` raises a problem for a caller who would be rejected now."""
        self._recheck = recheck
        self._every_s = every_s
        self._monotonic = monotonic
        self._due = monotonic() + every_s

    @property
    def is_due(self) -> bool:
        return self._monotonic() >= self._due

    async def try_refusal(self) -> ProblemError | None:
        """Return why the caller must be disconnected; None while it may stay, and when no recheck is due."""
        if not self.is_due:
            return None
        self._due = self._monotonic() + self._every_s
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                await self._recheck()
        except ProblemError as refusal:
            _log.info("The caller of a stream lost its access", why=refusal.detail)
            return refusal
        except (Unavailable, TimeoutError) as error:
            _log.info("Could not recheck the caller of a stream", error=str(error))
        return None
