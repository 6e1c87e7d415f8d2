"""Timelines that a worker caches after a turn, so that the next turn need not read and render them again."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Final

from chat_proc.timeline.present import Present
from chat_proc.timeline.view import PromptRenderer
from everturn.core.ids import ConversationId
from everturn.core.metrics import TIMELINES
from everturn.timeline.blocks import Block

CACHE_TTL_S: Final = 300.0
"""How long the timeline of a conversation without a new turn is cached; matches how long providers cache a prompt. It
also limits how long an erased conversation stays in memory."""
MAX_CACHE_BYTES: Final = 24 * 1024 * 1024
"""Limit for the memory of all cached timelines together, by the estimate below. Full garbage collections visit all of
it, which takes about 1.6 ms for each MiB of short blocks."""
BLOCK_BYTES: Final = 2_000
"""Approximate size of a short block with its body, rendered item and request part; tracemalloc measured 1,750 bytes."""
COPIES_OF_TEXT: Final = 3
"""The forms in which a body is in memory: JSON, parsed, rendered."""
VALUE_BYTES: Final = 100
"""Approximate size of a parsed list, object or item of JSON, as in the payload of an event."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """What requests show of a conversation's blocks, rendered for one kit, and the conversation's current state."""

    renderer: PromptRenderer
    present: Present


@dataclass(frozen=True, slots=True)
class CachedTimeline:
    """All blocks that a turn would load, up to the one with `last_hash`, and the rendering of a leading part of
    them."""

    last_hash: str
    blocks: tuple[Block, ...]
    rendering: Rendering | None = None


class TimelineCache:
    """Timelines of conversations with a turn that recently ended on this worker, at most `max_bytes` in total; the
    oldest entries are evicted first.

    Timelines only grow, and the last hash covers all blocks. While it is still the conversation's last hash, the cached
    blocks equal those in the database, whatever other workers have done.
    """

    def __init__(self, *, max_bytes: int = MAX_CACHE_BYTES, ttl_s: float = CACHE_TTL_S) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._entries: OrderedDict[ConversationId, tuple[CachedTimeline, int, asyncio.TimerHandle]] = OrderedDict()
        self._bytes = 0

    def put(self, conversation_id: ConversationId, timeline: CachedTimeline) -> None:
        """Cache a timeline whose turn has ended under this worker's lease, unless it may need more than a quarter of
        `max_bytes`."""
        self.discard(conversation_id)
        size = try_estimate_bytes(timeline.blocks, max_bytes=self._max_bytes // 4)
        if size is None:
            return
        if timeline.rendering is not None:
            timeline.rendering.renderer.drop_media()
        timer = asyncio.get_running_loop().call_later(self._ttl_s, self.discard, conversation_id)
        self._entries[conversation_id] = timeline, size, timer
        self._bytes += size
        while self._bytes > self._max_bytes:
            self.discard(next(iter(self._entries)))

    def pop(self, conversation_id: ConversationId, last_hash: str | None) -> CachedTimeline | None:
        """Remove the conversation's timeline, and return it if it ends with `last_hash`. The caller owns it from then
        on."""
        timeline = self._remove(conversation_id)
        if timeline is not None and timeline.last_hash != last_hash:
            timeline = None
        TIMELINES.labels("cold" if timeline is None else "warm").inc()
        return timeline

    def discard(self, conversation_id: ConversationId) -> None:
        """Remove the conversation's timeline if there is one."""
        self._remove(conversation_id)

    def _remove(self, conversation_id: ConversationId) -> CachedTimeline | None:
        timeline, size, timer = self._entries.pop(conversation_id, (None, 0, None))
        self._bytes -= size
        if timer is not None:
            timer.cancel()
        return timeline


def try_estimate_bytes(blocks: Sequence[Block], *, max_bytes: int) -> int | None:
    """Approximate memory use of blocks and their rendering; None above `max_bytes`. Too large for texts with many
    brackets and commas."""
    texts = [block.body_json for block in blocks]
    size = BLOCK_BYTES * len(texts) + COPIES_OF_TEXT * sum(map(getsizeof, texts))
    if size <= max_bytes:
        size += VALUE_BYTES * sum(text.count(",") + text.count("[") + text.count("{") for text in texts)
    return size if size <= max_bytes else None
