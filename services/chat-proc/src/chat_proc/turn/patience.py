"""Asking a server again when it does not answer: a restart of a few seconds costs a turn nothing but time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from everturn.cancellation import keep_cancellation
from everturn.errors import Unavailable
from everturn.model.leases import LeaseTiming

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")

PAUSES_S = (0.1, 0.3, 1.0, 2.0, 4.0)
"""Together less than a lease lasts; a worker that lost its lease meanwhile is stopped by its heartbeat."""


def build_patience(lease: LeaseTiming) -> "Patience":
    """Retries that end before the lease does, however short it is."""
    return Patience(tuple(pause_s * lease.retry_share for pause_s in PAUSES_S))


class Patience:
    """How often, and with which pauses in seconds, a call is made again."""

    def __init__(
        self,
        pauses_s: tuple[float, ...] = PAUSES_S,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pauses_s = pauses_s
        self._sleep = sleep

    async def call(self, make: Callable[[], Awaitable[_T]]) -> _T:
        """What `make` gives; raises Unavailable when it still does so after the last pause.

        A task that was cancelled meanwhile does not try again, whatever error came of it.
        """
        for pause_s in self._pauses_s:
            try:
                with keep_cancellation():
                    return await make()
            except Unavailable as error:
                _log.warning("asking_again", error=str(error), pause_s=pause_s)
                await self._sleep(pause_s)
        with keep_cancellation():
            return await make()
