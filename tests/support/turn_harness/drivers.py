"""The in-memory drivers as one worker reaches them: through a gate at which it can die, freeze, or be interrupted."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import EventCursor
from everturn.events.stream import Entry
from everturn.models.port import LanguageModel, ModelPiece, ModelRequest, ModelTraits
from everturn.timeline.blocks import Block
from everturn.timeline.sources import Source
from everturn.timeline.turns import Signal, Turn
from everturn.turns.model import Commit, Lease, TurnStart
from everturn_testing.events.events import MemoryEvents
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.leases import MemoryLeases
from everturn_testing.turns.timelines import MemoryTimelines

Hook = Callable[[Commit], Awaitable[None]]


class Gate:
    """Every call of a worker to the outside passes here, before and after it takes effect.

    At step `dies_at` the worker is gone: that call and all later ones never return. `freeze` holds calls until `thaw`.
    """

    def __init__(self, dies_at: int | None = None) -> None:
        self.steps = 0
        self.dead = asyncio.Event()
        self.at: dict[int, Callable[[], Awaitable[None]]] = {}
        """What happens elsewhere just when this step is made."""
        self.pass_time: Callable[[], None] = _stand_still
        """Called at each step: what a step takes."""
        self._dies_at = dies_at
        self._open = asyncio.Event()
        self._open.set()

    def freeze(self) -> None:
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    async def cross(self) -> None:
        self.steps += 1
        self.pass_time()
        if self.steps == self._dies_at:
            self.dead.set()
        if self.dead.is_set():
            await asyncio.Event().wait()
        if (happens := self.at.pop(self.steps, None)) is not None:
            await happens()
        await asyncio.sleep(0)
        await self._open.wait()


def _stand_still() -> None:
    """No step takes any time."""


class GatedLeases(MemoryLeases):
    """The leases of one worker, which can die before or after it releases an ended turn."""

    def __init__(self, platform: MemoryPlatform, gate: Gate, *, owner: str, ttl_s: float) -> None:
        super().__init__(platform, owner=owner, ttl_s=ttl_s)
        self._gate = gate

    async def mark_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> None:
        await self._gate.cross()
        await super().mark_announced(lease, turn_id, cursor)
        await self._gate.cross()

    async def release_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> bool:
        await self._gate.cross()
        has_work = await super().release_announced(lease, turn_id, cursor)
        await self._gate.cross()
        return has_work


class GatedTimelines:
    """Implements Timelines for one worker. `before_commit` is awaited with each commit before it is written."""

    def __init__(self, inner: MemoryTimelines, gate: Gate, after_commit: Callable[[], None]) -> None:
        self._inner = inner
        self._gate = gate
        self._after_commit = after_commit
        self.before_commit: Hook | None = None
        self.failures: list[Exception] = []
        """Raised by the next commits, one each, in place of writing."""

    async def load_start(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId, *, with_blocks: bool = True
    ) -> TurnStart:
        await self._gate.cross()
        return await self._inner.load_start(principal, conversation_id, turn_id, with_blocks=with_blocks)

    async def load_recent_blocks(self, principal: Principal, conversation_id: ConversationId) -> tuple[Block, ...]:
        await self._gate.cross()
        return await self._inner.load_recent_blocks(principal, conversation_id)

    async def load_turn(self, principal: Principal, turn_id: TurnId) -> Turn:
        await self._gate.cross()
        return await self._inner.load_turn(principal, turn_id)

    async def load_signals(self, principal: Principal, turn_id: TurnId) -> tuple[Signal, ...]:
        await self._gate.cross()
        signals = await self._inner.load_signals(principal, turn_id)
        await self._gate.cross()
        return signals

    async def load_title(self, principal: Principal, conversation_id: ConversationId) -> str:
        await self._gate.cross()
        return await self._inner.load_title(principal, conversation_id)

    async def save_title(self, lease: Lease, title: str) -> bool:
        await self._gate.cross()
        return await self._inner.save_title(lease, title)

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        await self._gate.cross()
        return await self._inner.load_sources(principal, conversation_id)

    async def load_source_text(self, principal: Principal, conversation_id: ConversationId, sid: int) -> str:
        await self._gate.cross()
        return await self._inner.load_source_text(principal, conversation_id, sid)

    async def commit(self, lease: Lease, commit: Commit) -> int:
        await self._gate.cross()
        if self.before_commit is not None:
            await self.before_commit(commit)
        if self.failures:
            raise self.failures.pop(0)
        assert commit.blocks or not commit.usage, "a repeated commit without blocks would count its usage twice"
        inbox_seq = await self._inner.commit(lease, commit)
        self._after_commit()
        await self._gate.cross()
        return inbox_seq


class GatedEvents:
    """Implements EventWriter for one worker."""

    def __init__(self, inner: MemoryEvents, gate: Gate, note_published: Callable[[EventCursor], None]) -> None:
        self._inner = inner
        self._gate = gate
        self._note_published = note_published

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        await self._gate.cross()
        return await self._inner.load_last(conversation_id)

    async def load_newest(
        self, conversation_id: ConversationId, *, max_entries: int, before: EventCursor | None = None
    ) -> tuple[Entry, ...]:
        await self._gate.cross()
        return await self._inner.load_newest(conversation_id, max_entries=max_entries, before=before)

    async def publish(
        self,
        conversation_id: ConversationId,
        entry: Entry,
        *,
        after: EventCursor | None,
        owner: Principal | None = None,
    ) -> None:
        await self._gate.cross()
        await self._inner.publish(conversation_id, entry, after=after, owner=owner)
        self._note_published(entry.events[-1].id)
        await self._gate.cross()


class GatedModel:
    """Implements LanguageModel for one worker."""

    def __init__(self, inner: LanguageModel, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate

    @property
    def traits(self) -> ModelTraits:
        return self._inner.traits

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        async with aclosing(self._inner.generate(request)) as pieces:
            async for piece in pieces:
                await self._gate.cross()
                yield piece
