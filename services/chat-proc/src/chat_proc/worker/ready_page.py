"""A worker's readiness as a page: whether what it needs answers, looked up for who asks, and not for each of many."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from typing import Final

from chat_proc.worker.health_server import Page
from everturn.telemetry.parts import Part, check_all, sum_up

KEEP_S: Final = 2.0
"""How old an answer may be: the page needs no credential, so reading it often must not be work."""
_UNREADY: Final = 503
_READY: Final = 200


class ReadyPage:
    """Owns the last answer."""

    def __init__(self, parts: Mapping[str, Part], monotonic: Callable[[], float]) -> None:
        self._parts = parts
        self._monotonic = monotonic
        self._looked_at = -math.inf
        self._page = Page(_UNREADY, "application/json", b"{}")
        self._looking = asyncio.Lock()

    async def build(self) -> Page:
        """503 where a part is missing that turns need, or where this worker takes no more of them."""
        async with self._looking:
            if self._monotonic() - self._looked_at > KEEP_S:
                self._page = await self._look()
                self._looked_at = self._monotonic()
            return self._page

    async def _look(self) -> Page:
        found = await check_all(self._parts)
        status = sum_up(self._parts, found)
        body = {"status": status, "parts": {name: out.model_dump() for name, out in found.items()}}
        return Page(_UNREADY if status == "unready" else _READY, "application/json", json.dumps(body).encode())
