"""Retries of calls to servers that do not answer. `docs/subsystems/retries.md` lists all retries."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from everturn.core.cancellation import keep_cancellation
from everturn.core.errors import Unavailable
from everturn.core.lease_timing import LeaseTiming

_log = structlog.get_logger(__name__)

_T = TypeVar("_T")

PAUSES_S = (0.1, 0.3, 1.0, 2.0, 4.0)
"""Shorter in total than a lease, without the calls between them."""


class RetryPolicy:
    """How often, and after which pauses in seconds, a call is retried: a server that restarts only delays it.

    A pause is up to a quarter longer or shorter, so that not all turns of all workers come back at once.
    """

    def __init__(
        self,
        pauses_s: tuple[float, ...] = PAUSES_S,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.pauses_s = pauses_s
        self._sleep = sleep
        self._chance = chance

    @classmethod
    def within_lease(cls, lease: LeaseTiming) -> "RetryPolicy":
        """Retries whose pauses together are shorter than the lease, however short it is. The calls take longer; if the
        lease expires meanwhile, the heartbeat stops the worker."""
        return cls(tuple(pause_s * lease.retry_share for pause_s in PAUSES_S))

    async def call(self, make: Callable[[], Awaitable[_T]]) -> _T:
        """Return what `make` returns; raise Unavailable if it still does after the last pause.

        A task that was cancelled meanwhile does not retry, whatever error the cancellation caused.
        """
        for pause_s in self.pauses_s:
            try:
                with keep_cancellation():
                    return await make()
            except Unavailable as error:
                _log.warning("Retrying a call after an error", error=str(error), pause_s=pause_s)
                await self._sleep(pause_s * (0.75 + self._chance() / 2))
        with keep_cancellation():
            return await make()
