"""A worker's readiness as a page: whether what it needs answers, looked up for who asks, and not for each of many."""

import json
from collections.abc import Callable, Mapping
from typing import Final

from everturn.telemetry.kept import Kept
from everturn.telemetry.page_server import Page
from everturn.telemetry.parts import Part, check_all, sum_up

KEEP_S: Final = 2.0
"""How old an answer may be: the page needs no credential, so reading it often must not be work."""
_UNREADY: Final = 503
_READY: Final = 200


class ReadyPage:
    """Owns the last answer."""

    def __init__(self, parts: Mapping[str, Part], monotonic: Callable[[], float]) -> None:
        self._parts = parts
        self._kept = Kept(self._look, keep_s=KEEP_S, monotonic=monotonic)

    async def build(self) -> Page:
        """503 where a part is missing that turns need, or where this worker takes no more of them."""
        return await self._kept.load()

    async def _look(self) -> Page:
        found = await check_all(self._parts)
        status = sum_up(self._parts, found)
        body = {"status": status, "parts": {name: out.model_dump() for name, out in found.items()}}
        return Page(_UNREADY if status == "unready" else _READY, "application/json", json.dumps(body).encode())
