"""What a worker keeps of a conversation after a turn, so that its next turn need not read and render it again."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from sys import getsizeof
from typing import Final

from chat_proc.timeline.present import Present
from chat_proc.timeline.view import PromptRenderer
from everturn.core.ids import ConversationId
from everturn.core.metrics import TIMELINES_LOADED
from everturn.timeline.blocks import Block

KEPT_S: Final = 300.0
"""How long a conversation is kept without a turn: as long as providers keep the beginning of a request. An erased
conversation is out of memory by then."""
MAX_KEPT_BYTES: Final = 48 * 1024 * 1024
"""Limit for the memory of all kept conversations together, by the estimate below."""
BLOCK_BYTES: Final = 2_000
"""About the memory of a short block with its body, its rendered item and its part of the request: 1,750 bytes, by
tracemalloc."""
COPIES_OF_TEXT: Final = 3
"""In how many forms a body is in memory: as JSON, as parsed, and as rendered."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """What the requests of one kit show of a conversation's blocks, and its current state."""

    renderer: PromptRenderer
    present: Present


@dataclass(frozen=True, slots=True)
class KeptTimeline:
    """All blocks that a turn would load, up to the one with `last_hash`, and how they were rendered."""

    last_hash: str
    blocks: tuple[Block, ...]
    rendering: Rendering | None = None

    @property
    def size(self) -> int:
        """About its memory in bytes."""
        return sum(BLOCK_BYTES + COPIES_OF_TEXT * getsizeof(block.body_json) for block in self.blocks)


class KeptTimelines:
    """The conversations whose last turn ended on this worker, at most `max_bytes`; the longest unused go first.

    A timeline only grows, and its last hash covers all its blocks: what is kept is what the database would return as
    long as the hash is still the last one, whatever other workers have done.
    """

    def __init__(self, *, max_bytes: int = MAX_KEPT_BYTES, keep_s: float = KEPT_S) -> None:
        self._max_bytes = max_bytes
        self._keep_s = keep_s
        self._kept: OrderedDict[ConversationId, tuple[KeptTimeline, int, asyncio.TimerHandle]] = OrderedDict()
        self._bytes = 0

    def take(self, conversation_id: ConversationId, last_hash: str | None) -> KeptTimeline | None:
        """Remove and return the timeline that ends with this hash. Only its taker uses it from now on."""
        kept = self._remove(conversation_id)
        if kept is not None and kept.last_hash != last_hash:
            kept = None
        TIMELINES_LOADED.labels("cold" if kept is None else "warm").inc()
        return kept

    def keep(self, conversation_id: ConversationId, kept: KeptTimeline) -> None:
        """Keep a timeline whose turn has ended under this worker's lease, unless it is too large."""
        self._remove(conversation_id)
        size = kept.size
        if size > self._max_bytes:
            return
        if kept.rendering is not None:
            kept.rendering.renderer.drop_media()
        timer = asyncio.get_running_loop().call_later(self._keep_s, self._remove, conversation_id)
        self._kept[conversation_id] = kept, size, timer
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._remove(next(iter(self._kept)))

    def _remove(self, conversation_id: ConversationId) -> KeptTimeline | None:
        kept, size, timer = self._kept.pop(conversation_id, (None, 0, None))
        self._bytes -= size
        if timer is not None:
            timer.cancel()
        return kept
