"""Tells clients that wait how many turns are still before theirs, as often as that changes."""

import asyncio
from collections import OrderedDict
from typing import Final

import structlog

from everturn.errors import Unavailable
from everturn.model.ids import ConversationId
from ingress.stream.rows import StreamRows
from ingress.stream.subscription import ConversationStream

EVERY_S: Final = 1.0
"""Between two looks at the queue; while nobody who waits is followed there is none."""
BATCH: Final = 100
"""Conversations of one look, which is one query. Where more wait they take turns, and each is told less often."""

_log = structlog.get_logger(__name__)


class Positions:
    """Owns which of a process's streams wait in the queue; `run` is a task of its own."""

    def __init__(self, rows: StreamRows, *, every_s: float = EVERY_S) -> None:
        self._rows = rows
        self._every_s = every_s
        self._waiting: OrderedDict[ConversationId, ConversationStream] = OrderedDict()

    def note(self, stream: ConversationStream, *, queued: bool) -> None:
        """What an event or a row says of the conversation. An old row is put right by the next look.

        A row may come when all clients of its stream have gone; it takes no place from the stream of who came since.
        """
        if queued and stream.clients:
            self._waiting[stream.conversation_id] = stream
        else:
            self.forget(stream)

    def forget(self, stream: ConversationStream) -> None:
        """Nobody follows it any more, or it waits no longer."""
        if self._waiting.get(stream.conversation_id) is stream:
            del self._waiting[stream.conversation_id]
        stream.told_position = None

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.tell()

    async def tell(self) -> None:
        """One look. A wire or database that is away leaves clients with what they know."""
        batch = list(self._waiting.values())[:BATCH]
        if not batch:
            return
        known = [(stream.version, stream.reads) for stream in batch]
        try:
            found = await self._rows.load_positions([(stream.principal, stream.conversation_id) for stream in batch])
        except Unavailable as error:
            _log.info("positions were not read", error=str(error))
            return
        for stream, (version, reads) in zip(batch, known, strict=True):
            waiting = found.get(stream.conversation_id)
            if stream.version != version:
                # It began to run meanwhile, or waits again: the next look tells.
                continue
            if waiting is None:
                self.forget(stream)
                continue
            self._move_back(stream)
            if waiting.position != stream.told_position:
                stream.told_position = waiting.position
                stream.offer_hint(self._rows.build_waiting(stream.conversation_id, waiting), read_at=reads)

    def _move_back(self, stream: ConversationStream) -> None:
        if stream.conversation_id in self._waiting:
            self._waiting.move_to_end(stream.conversation_id)
