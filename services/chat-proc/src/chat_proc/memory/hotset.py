"""The most important memories of a person, which every turn begins with."""

import asyncio

import structlog

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.memory.user_memories import UserMemories, UserMemory

_log = structlog.get_logger(__name__)

HOTSET_ROWS = 8
TIMEOUT_S = 2.0
"""After this time a turn continues without them."""


class Hotset:
    """Loads the hotset for a turn; a failure is reported to the model and logged, but ends no turn."""

    def __init__(self, memories: UserMemories, *, timeout_s: float = TIMEOUT_S) -> None:
        self._memories = memories
        self._timeout_s = timeout_s

    async def load_hotset(self, principal: Principal) -> tuple[UserMemory, ...] | str:
        """The hottest memories, or the reason as text if they can't be loaded."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._memories.load_hotset(principal, HOTSET_ROWS)
        except (Unavailable, TimeoutError) as error:
            _log.warning("Could not load the user memories", error=str(error))
            return "memories are not available now"
