"""Many conversations at once, each followed by a client, that go on while something fails; every one is checked."""

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field

from platform_harness.harness import Harness
from platform_harness.watcher import Watcher

from everturn_client.answers import Accepted
from everturn_client.backoff import Timings
from everturn_client.client import EverturnClient
from everturn_local.servers.databases import DATABASE

TURNS = int(os.environ.get("TURNS") or "12")
"""At least 6; `make failover` sets it."""
CONVERSATIONS = min(30, TURNS // 2)
"""All are of one person, who may have 32 streams of an ingress, and for a while there is only one."""
SLOTS = 16
"""Of each worker."""
TEXTS = ("script:brisk please", "script:plain please")
MAX_TURNS = 18
"""Of one conversation: all of them fit in a snapshot."""
BEGIN_EVERY_S = 0.05
READS_S = 1.0
"""How long a person reads an answer."""
LIMIT_S = 60.0 + TURNS
PATIENT = Timings(max_delay_s=5.0, attempts=200, give_up_s=400.0)
"""Sends a message again until it is accepted: on a busy machine many are refused."""


@dataclass
class Load:
    """A third of the conversations begin with `disturb`; all go on until `check`."""

    harness: Harness
    accepted: dict[str, float] = field(default_factory=lambda: {})
    """When each turn was accepted, by the monotonic clock."""
    _talks: list[asyncio.Task[Watcher]] = field(default_factory=lambda: [])
    _disturbed: asyncio.Event = field(default_factory=asyncio.Event)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _running: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def start(self) -> None:
        """Returns once half of the turns that may start now can be seen running."""
        self._talks = [asyncio.create_task(self._talk(n)) for n in range(CONVERSATIONS)]
        async with asyncio.timeout(LIMIT_S), self._changed:
            await self._changed.wait_for(lambda: self._running >= CONVERSATIONS // 3)

    def disturb(self) -> None:
        self._disturbed.set()

    async def _talk(self, n: int) -> Watcher:
        if n % 3 == 2:
            await self._disturbed.wait()
        await asyncio.sleep(n * BEGIN_EVERY_S)
        async with EverturnClient(self.harness.clients[n % 2].base_url, timings=PATIENT) as client:
            sent = await self._send(client, "new", TEXTS[0])
            watcher = self.harness.watch(sent.conversation_id, ingress=n // 2 % 2)
            await watcher.wait_text(sent.turn_id, "thinking", LIMIT_S)
            async with self._changed:
                self._running += 1
                self._changed.notify_all()
            await self._wait_completed(watcher, sent.turn_id)
            count = 1
            while count < MAX_TURNS and not (count >= len(TEXTS) and self._is_enough()):
                sent = await self._send(client, sent.conversation_id, TEXTS[count % len(TEXTS)])
                await self._wait_completed(watcher, sent.turn_id)
                count += 1
                if len(self.accepted) >= TURNS:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._over.wait(), READS_S)
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle", LIMIT_S)
        return watcher

    def _is_enough(self) -> bool:
        return self._over.is_set() and len(self.accepted) >= TURNS

    async def _send(self, client: EverturnClient, conversation_id: str, text: str) -> Accepted:
        sent = await client.send_message(conversation_id, text)
        self.accepted[sent.turn_id] = time.monotonic()
        return sent

    async def _wait_completed(self, watcher: Watcher, turn_id: str) -> None:
        turn = await watcher.wait_ended(turn_id, LIMIT_S)
        assert (turn.status, turn.error) == ("completed", None)

    async def check(self) -> list[Watcher]:
        """What was accepted has ended, once, and there is nothing else; every stream folds to what is stored."""
        self.disturb()
        self._over.set()
        watchers = await asyncio.gather(*self._talks)
        for watcher in watchers:
            await self.harness.check_invariants(watcher.conversation_id, watcher)
        sql = "SELECT id FROM turn WHERE status = 'completed'"
        rows = await asyncio.to_thread(self.harness.platform.postgres.run_sql, sql, database=DATABASE)
        assert sorted(rows.split()) == sorted(self.accepted)
        return watchers

    async def close(self) -> None:
        for talk in self._talks:
            talk.cancel()
        if self._talks:
            await asyncio.wait(self._talks)
