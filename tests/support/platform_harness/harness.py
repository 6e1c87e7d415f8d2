"""A running platform and its clients, with the checker that every test of a fault ends with."""

import asyncio
import contextlib
import random
from collections.abc import Sequence

from everturn.events.views import StateView
from everturn_client.backoff import Timings
from everturn_client.client import EverturnClient
from everturn_local.supervision.platform import Platform
from everturn_testing.states import comparable_state
from platform_harness.cleanup import check_nothing_left
from platform_harness.invariants import (
    check_blocks,
    check_rows,
    check_seen,
    check_state,
    differences,
)
from platform_harness.watcher import Watcher

WATCHERS_PER_CLIENT = 50


class Harness:
    """`urls` are where clients reach the ingresses, if not directly; they are all of one tenant."""

    def __init__(
        self,
        platform: Platform,
        *,
        urls: Sequence[str] | None = None,
        timings: Timings | None = None,
        tenant: str = "default",
    ) -> None:
        self.platform = platform
        self._urls = urls or platform.urls
        self._tenant = tenant
        self.clients = [self._new_client(url, timings) for url in self._urls]
        self._watching_clients: list[EverturnClient] = []
        self._watching: list[asyncio.Task[None]] = []

    def _new_client(self, url: str, timings: Timings | None) -> EverturnClient:
        return EverturnClient(url, tenant=self._tenant, timings=timings)

    def watch(
        self, conversation_id: str, *, ingress: int = 0, cuts: int | None = None, after: str | None = None
    ) -> Watcher:
        """Follow a conversation from now on, or after an event id; `cuts` seeds random disconnects."""
        dice = random.Random(cuts) if cuts is not None else None
        return self.follow(Watcher(self.clients[ingress], conversation_id, dice, after))

    def watch_all(self, conversation_ids: Sequence[str], count: int) -> list[Watcher]:
        """So many on the first ingress, the conversations in turn, with the timeouts of any client.

        One client has few connections, so it takes several.
        """
        clients = [self._new_client(self._urls[0], None) for _ in range(0, count, WATCHERS_PER_CLIENT)]
        self._watching_clients += clients
        return [
            self.follow(Watcher(clients[n // WATCHERS_PER_CLIENT], conversation_ids[n % len(conversation_ids)]))
            for n in range(count)
        ]

    def follow(self, watcher: Watcher) -> Watcher:
        """Run a client until `close`."""
        self._watching.append(asyncio.create_task(watcher.run()))
        return watcher

    async def close(self) -> None:
        for task in self._watching:
            task.cancel()
        if self._watching:
            await asyncio.wait(self._watching)
        self._watching.clear()

    async def quit(self) -> None:
        await self.close()
        for client in (*self.clients, *self._watching_clients):
            await client.aclose()

    async def check_invariants(self, conversation_id: str, *watchers: Watcher, parked: bool = False) -> StateView:
        """Check the invariants of an idle conversation; returns its state as REST reads it, the same everywhere.

        `parked` is one that waits for a person. Any other open turn is a lost turn.
        """
        states = [await client.fetch(conversation_id) for client in self.clients]
        for other in states[1:]:
            # The cursor moves once more when the end is recorded as announced.
            assert differences(comparable_state(other).model_dump(), comparable_state(states[0]).model_dump()) == []
        state = states[0]
        check_state(state, parked=parked)
        await check_blocks(self.platform.database, self._tenant, conversation_id, state)
        await asyncio.to_thread(check_rows, self.platform.postgres, conversation_id)
        for watcher in watchers:
            await self._check_watcher(watcher, state)
        await check_nothing_left(self.platform, conversation_id)
        return state

    async def _check_watcher(self, watcher: Watcher, state: StateView) -> None:
        with contextlib.suppress(TimeoutError):
            await watcher.wait_until(
                lambda w: w.state is not None and comparable_state(w.state) == comparable_state(state), 15
            )
        assert watcher.failure is None
        check_seen(watcher.seen, watcher.state, state)
