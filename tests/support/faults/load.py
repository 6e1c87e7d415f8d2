"""Many conversations at once, each followed by a client, that go on while something fails; every one is checked."""

import asyncio
import os
import random
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from platform_harness.harness import Harness
from platform_harness.watcher import Watcher

from everturn_client.answers import Accepted
from everturn_client.backoff import Timings
from everturn_client.client import EverturnClient
from everturn_local.servers.databases import DATABASE

TURNS = int(os.environ.get("TURNS") or "12")
"""At least 6; `make failover` sets it."""
SEED = int(os.environ.get("SEED") or "1")
"""How long each person reads, and the moments of faults."""
CONVERSATIONS = min(30, TURNS // 2)
"""All are of one person, who may have 32 streams of an ingress, and for a while there is only one."""
SLOTS = 16
"""Of each worker."""
TEXTS = ("script:brisk please", "script:plain please")
DETACHED = "script:long please"
"""Its program takes longer than DETACHING allows, so that its turn waits without a worker."""
DETACHING = {"EXECUTION_PROFILES": '{"default": {"detach_after_s": 0.1}}'}
"""The environment of a platform for a load with `detached`."""
WRITE_TOOL, CODE_TOOL = "react.write", "exec_tools.execute_code_python"
MAX_TURNS = 18
"""Of one conversation: all of them fit in a snapshot."""
BEGIN_EVERY_S, WAITING_EVERY_S = 0.05, 0.1
READS_S = 1.0
"""How long a person reads an answer while the others' turns end, at most."""
LIMIT_S = 60.0 + TURNS
PATIENT = Timings(max_delay_s=5.0, attempts=200, give_up_s=400.0)
"""Sends a message again until it is accepted: on a busy machine many are refused."""


@dataclass
class Load:
    """A third of the conversations begin with `disturb`; all go on until `check`. Each message is one of `texts` in
    turn, with these files. With `detached`, those of the first conversation are DETACHED instead."""

    harness: Harness
    texts: Sequence[str] = TEXTS
    detached: bool = False
    files: Sequence[Path] = ()
    accepted: dict[str, float] = field(default_factory=lambda: {})
    """When each turn was accepted, by the monotonic clock."""
    dice: random.Random = field(default_factory=lambda: random.Random(SEED))
    """For the moments of faults."""
    _before: set[str] = field(default_factory=set[str])
    """The completed turns of earlier loads."""
    _talks: list[asyncio.Task[Watcher]] = field(default_factory=lambda: [])
    _disturbed: asyncio.Event = field(default_factory=asyncio.Event)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _running: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def start(self) -> None:
        """Returns once half of the turns that may start now can be seen running, and with `detached` one waits for its
        program."""
        self._before = await self._load_completed()
        self._talks = [asyncio.create_task(self._talk(n)) for n in range(CONVERSATIONS)]
        async with asyncio.timeout(LIMIT_S), self._changed:
            await self._changed.wait_for(lambda: self._running >= CONVERSATIONS // 3)
        if self.detached:
            await self._wait_detached()

    async def _wait_detached(self) -> None:
        sql = "SELECT 1 FROM detached_run r JOIN turn t ON t.id = r.turn_id WHERE t.status = 'waiting'"
        async with asyncio.timeout(LIMIT_S):
            while not await self._query(sql):  # noqa: ASYNC110 - only the rows show it
                await asyncio.sleep(WAITING_EVERY_S)

    def disturb(self) -> None:
        self._disturbed.set()

    async def _talk(self, n: int) -> Watcher:
        if n % 3 == 2:
            await self._disturbed.wait()
        await asyncio.sleep(n * BEGIN_EVERY_S)
        async with EverturnClient(self.harness.clients[n % 2].base_url, timings=PATIENT) as client:
            dice, texts = random.Random(f"{SEED} {n}"), [DETACHED] if self._is_detached(n) else self.texts
            sent = await self._send(client, "new", texts[n % len(texts)])
            watcher = self.harness.watch(sent.conversation_id, ingress=n // 2 % 2)
            await watcher.wait_text(sent.turn_id, "thinking", LIMIT_S)
            async with self._changed:
                self._running += 1
                self._changed.notify_all()
            await self._wait_completed(watcher, sent.turn_id)
            count = 1
            while count < MAX_TURNS and not (count >= len(texts) and self._is_enough()):
                sent = await self._send(client, sent.conversation_id, texts[(n + count) % len(texts)])
                await self._wait_completed(watcher, sent.turn_id)
                count += 1
                if len(self.accepted) >= TURNS:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._over.wait(), dice.uniform(0, READS_S))
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle", LIMIT_S)
        return watcher

    def _is_detached(self, n: int) -> bool:
        return self.detached and n == 0

    def _is_enough(self) -> bool:
        return self._over.is_set() and len(self.accepted) >= TURNS

    async def _send(self, client: EverturnClient, conversation_id: str, text: str) -> Accepted:
        sent = await client.send_message(conversation_id, text, files=self.files)
        self.accepted[sent.turn_id] = time.monotonic()
        return sent

    async def _wait_completed(self, watcher: Watcher, turn_id: str) -> None:
        turn = await watcher.wait_ended(turn_id, LIMIT_S)
        assert (turn.status, turn.error) == ("completed", None)

    async def check(self, others: Collection[str] = ()) -> list[Watcher]:
        """What was accepted, also `others`, has ended, once, and there is nothing else; every stream folds to what is
        stored, and every file that a turn has can be read."""
        self.disturb()
        self._over.set()
        watchers = await asyncio.gather(*self._talks)
        for n, watcher in enumerate(watchers):
            await self.harness.check_invariants(watcher.conversation_id, watcher)
            await self._check_files(watcher, CODE_TOOL if self._is_detached(n) else WRITE_TOOL)
        assert sorted(await self._load_completed() - self._before) == sorted({*self.accepted, *others})
        return watchers

    async def _check_files(self, watcher: Watcher, tool_id: str) -> None:
        """A step of this tool left a file, another one left none."""
        assert watcher.state is not None
        for turn in watcher.state.turns:
            assert [file.filename for file in turn.attachments] == [path.name for path in self.files]
            written = sum(step.status == "completed" and step.tool_id == tool_id for step in turn.steps)
            assert len(turn.files) == written
            async with httpx2.AsyncClient(base_url=self.harness.clients[0].base_url, trust_env=False) as http:
                for file in (*turn.attachments, *turn.files):
                    answer = await http.get(file.url, timeout=LIMIT_S)
                    assert (answer.status_code, len(answer.content)) == (200, file.size), file

    async def _load_completed(self) -> set[str]:
        return await self._query("SELECT id FROM turn WHERE status = 'completed'")

    async def _query(self, sql: str) -> set[str]:
        return set((await asyncio.to_thread(self.harness.platform.postgres.run_sql, sql, database=DATABASE)).split())

    def report(self, fault: str, broken_at: float, repaired_at: float) -> None:
        """The figures of `make failover`, by the monotonic clock, once all is checked."""
        later = [at for at in self.accepted.values() if at > repaired_at]
        first = f"{min(later) - repaired_at:.1f} s later" if later else "not needed"
        print(  # noqa: T201
            f"\n{fault}, seed {SEED}: {len(self.accepted)} turns, repaired after {repaired_at - broken_at:.1f} s, the "
            f"next message accepted {first}, all was checked {time.monotonic() - repaired_at:.1f} s later"
        )

    async def close(self) -> None:
        for talk in self._talks:
            talk.cancel()
        if self._talks:
            await asyncio.wait(self._talks)
