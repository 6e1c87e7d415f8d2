"""Where the state of a running coding agent is kept, so that its call goes on when its worker is lost."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from chat_proc.tools.coding.events import Event, read_kept_events, write_events
from chat_proc.tools.coding.project_files import MAX_STATE_BYTES
from everturn.core.errors import EverturnError, Invalid, NotFound
from everturn.files.model import agent_state_key
from everturn.files.objects import Objects
from everturn.turns.model import Lease

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AgentState:
    """What the agent has done, and the archive that its driver made of its home and the changes of the project."""

    events: tuple[Event, ...]
    archive: bytes


@dataclass(frozen=True, slots=True)
class CallStates:
    """The states of one call. Each lease has an object of its own: a worker that has lost its lease can't change what
    its successor goes on with."""

    objects: Objects
    lease: Lease
    turn_id: str
    round: int
    call_id: str

    @property
    def key(self) -> str:
        """Of the state that this lease writes."""
        return self._build_key(self.lease.fence)

    async def save(self, events: Sequence[Event], archive: bytes) -> bool:
        """Whether they are stored. The agent goes on without, and its next state is tried again."""
        try:
            await self.objects.save(self.key, await asyncio.to_thread(_join, tuple(events), archive))
        except EverturnError as error:
            _log.warning("Could not save the state of a coding agent", call_id=self.call_id, error=str(error))
            return False
        return True

    async def load(self) -> AgentState | None:
        """The latest state of this call; None if no worker has saved one. Raises Unavailable."""
        prefix = self._build_key(0)[:-8]
        page = await self.objects.load_page(prefix)
        keys = [stored.key for stored in page.objects if stored.key <= self.key]
        return await try_load(self.objects, max(keys)) if keys else None

    def _build_key(self, fence: int) -> str:
        return agent_state_key(self.lease.conversation_id, self.turn_id, self.round, self.call_id, fence)


async def try_load(objects: Objects, key: str) -> AgentState | None:
    """A state; None if it is gone or can't be one. Raises Unavailable."""
    try:
        data = await objects.load(key, max_bytes=2 * MAX_STATE_BYTES)
        return await asyncio.to_thread(_part, data)
    except (NotFound, Invalid, ValueError):
        return None


def _join(events: Sequence[Event], archive: bytes) -> bytes:
    return write_events(events) + b"\n" + archive


def _part(data: bytes) -> AgentState:
    line, _, archive = data.partition(b"\n")
    return AgentState(read_kept_events(line), archive)
