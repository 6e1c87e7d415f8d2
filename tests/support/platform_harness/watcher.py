"""One client on an event stream, folding what it sees."""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from everturn.core.errors import EverturnError
from everturn.events.fold import fold_event, is_open
from everturn.events.model import Envelope, StreamSnapshot
from everturn.events.views import StateView, TurnView
from everturn_client.client import EverturnClient

TURN_LIMIT_S = 90.0


@dataclass
class Watcher:
    """With `cuts` it drops its connection at random and resumes by id."""

    client: EverturnClient
    conversation_id: str
    cuts: random.Random | None = None
    after: str | None = None
    state: StateView | None = None
    seen: list[Envelope] = field(default_factory=lambda: [])
    reconnects: int = 0
    failure: EverturnError | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Follow until cancelled, or until the client gives up: `wait_until` raises that."""
        last_id = self.after
        try:
            while True:
                last_id = await self._run_connection(last_id)
                self.reconnects += 1
        except EverturnError as error:
            self.failure = error
            self._changed.set()

    async def _run_connection(self, last_id: str | None) -> str | None:
        left = self.cuts.randint(1, 12) if self.cuts else None
        async with aclosing(self.client.events(self.conversation_id, last_id)) as envelopes:
            async for envelope in envelopes:
                self._take(envelope)
                last_id = find_place(envelope, last_id)
                left = None if left is None else left - 1
                if left == 0 and last_id is not None:
                    break
        return last_id

    def _take(self, envelope: Envelope) -> None:
        self.seen.append(envelope)
        if isinstance(envelope.data, StreamSnapshot):
            self.state = envelope.data.state
        elif self.state is not None:
            self.state = fold_event(self.state, envelope)
        self._changed.set()

    async def wait_until(self, condition: Callable[["Watcher"], bool], limit_s: float = TURN_LIMIT_S) -> None:
        async with asyncio.timeout(limit_s):
            while not condition(self):
                if self.failure is not None:
                    raise self.failure
                self._changed.clear()
                await self._changed.wait()

    def turn(self, turn_id: str) -> TurnView | None:
        turns = self.state.turns if self.state else ()
        return next((turn for turn in turns if turn.turn_id == turn_id), None)

    async def wait_ended(self, turn_id: str, limit_s: float = TURN_LIMIT_S) -> TurnView:
        def ended(watcher: Watcher) -> bool:
            turn = watcher.turn(turn_id)
            return turn is not None and not is_open(turn)

        await self.wait_until(ended, limit_s)
        turn = self.turn(turn_id)
        assert turn is not None
        return turn

    async def wait_text(self, turn_id: str, channel: str, limit_s: float = TURN_LIMIT_S) -> None:
        """Until some text of this channel has been seen."""

        def shows(watcher: Watcher) -> bool:
            turn = watcher.turn(turn_id)
            return turn is not None and any(text.channel == channel for text in turn.texts)

        await self.wait_until(shows, limit_s)


def find_place(envelope: Envelope, last_id: str | None) -> str | None:
    """What the next connection goes on from. A snapshot replaces all that was seen before it; one of no events has no
    id."""
    if isinstance(envelope.data, StreamSnapshot):
        return None if envelope.data.state.cursor == "0-0" else envelope.data.state.cursor
    return envelope.id or last_id
