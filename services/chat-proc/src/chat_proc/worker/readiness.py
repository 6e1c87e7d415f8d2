"""What a worker reports once it is ready, and its readiness page."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from everturn.core.page_server import Page
from everturn.core.readiness import Part, check_all, summarize_readiness
from everturn.core.ttl_cache import TtlCache

READINESS_KEEP_S: Final = 2.0
"""How old an answer can be: the page needs no credential, so frequent reads must be cheap."""
_UNREADY: Final = 503
_READY: Final = 200


@dataclass(frozen=True, slots=True)
class StartReport:
    """What a worker chose, which it reports to the operator once it is ready."""

    model: str
    model_why: str
    sandbox: str
    sandbox_why: str
    embedder: str
    embedder_why: str
    lexical_only: bool
    """Memory search compares words, not meanings."""

    def line(self) -> str:
        """One line of JSON for the process supervisor."""
        return json.dumps(
            {
                "ready": True,
                "model": self.model,
                "why": self.model_why,
                "sandbox": self.sandbox,
                "sandbox_why": self.sandbox_why,
                "embedder": self.embedder,
                "embedder_why": self.embedder_why,
                "lexical_only": self.lexical_only,
            }
        )


class ReadyPage:
    """Checks the worker's dependencies on request, and keeps the last answer for frequent readers."""

    def __init__(self, parts: Mapping[str, Part], monotonic: Callable[[], float]) -> None:
        self._parts = parts
        self._cache = TtlCache(self._check_parts, keep_s=READINESS_KEEP_S, monotonic=monotonic)

    async def build(self) -> Page:
        """Status 503 if a part that turns need is unavailable, or if this worker accepts no more turns."""
        return await self._cache.load()

    async def _check_parts(self) -> Page:
        found = await check_all(self._parts)
        status = summarize_readiness(self._parts, found)
        body = {"status": status, "parts": {name: out.model_dump() for name, out in found.items()}}
        return Page(_UNREADY if status == "unready" else _READY, "application/json", json.dumps(body).encode())
