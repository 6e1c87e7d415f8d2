"""The platform with real processes, watchers that fold what clients see, and the checker each fault test ends with."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from everturn.model.block_bodies import ExitBody
from everturn.model.blocks import first_broken_link
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.model.leases import EventCursor, try_parse_cursor
from everturn.postgres.database import open_database
from everturn.postgres.timelines import PostgresTimelines
from everturn.timeline.event_fold import fold_event, is_open
from everturn.wire.events import ChatComplete, ChatError, Envelope, StreamSnapshot
from everturn.wire.views import StateView, TurnView
from everturn_client.client import EverturnClient
from everturn_local.supervision.platform import Platform

TURN_LIMIT_S = 40.0
LEASE_S = "2"


@dataclass
class Watcher:
    """One client on the event stream. With `cuts` it drops its connection at random and resumes by id."""

    client: EverturnClient
    conversation_id: str
    cuts: random.Random | None = None
    state: StateView | None = None
    seen: list[Envelope] = field(default_factory=lambda: [])
    reconnects: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        last_id: str | None = None
        while True:
            left = self.cuts.randint(1, 12) if self.cuts else None
            async with aclosing(self.client.events(self.conversation_id, last_id)) as envelopes:
                async for envelope in envelopes:
                    self._take(envelope)
                    last_id = envelope.id or last_id
                    left = None if left is None else left - 1
                    if left == 0 and last_id is not None:
                        break
            self.reconnects += 1

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


class Stage:
    """A running platform, its clients and its checker."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.clients = [EverturnClient(url) for url in platform.urls]
        self._watching: list[asyncio.Task[None]] = []

    def watch(self, conversation_id: str, *, ingress: int = 0, cuts: int | None = None) -> Watcher:
        """Follow a conversation from now on; `cuts` seeds random disconnects."""
        watcher = Watcher(self.clients[ingress], conversation_id, random.Random(cuts) if cuts is not None else None)
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
        for client in self.clients:
            await client.aclose()

    async def check_history(self, conversation_id: str, *watchers: Watcher) -> StateView:
        """The invariants of a conversation at rest; returns its state as REST reads it."""
        states = [await client.fetch(conversation_id) for client in self.clients]
        assert states[0] == states[1]
        state = states[0]
        assert state.conversation.state == "idle"
        assert not [turn.turn_id for turn in state.turns if is_open(turn)]
        await self._check_blocks(conversation_id, state)
        for watcher in watchers:
            await self._check_watcher(watcher, state)
        return state

    async def _check_blocks(self, conversation_id: str, state: StateView) -> None:
        principal = Principal("default", "default", "dev")
        async with open_database(self.platform.database.worker, pool_size=1, application_name="checker") as database:
            blocks = await PostgresTimelines(database).load_blocks(principal, ConversationId(conversation_id))
        assert [block.seq for block in blocks] == list(range(1, len(blocks) + 1))
        assert first_broken_link(blocks) is None
        for turn in state.turns:
            own = [block for block in blocks if block.turn_id == turn.turn_id]
            assert [isinstance(block.body, ExitBody) for block in own].count(True) == 1
            assert isinstance(own[-1].body, ExitBody)

    async def _check_watcher(self, watcher: Watcher, state: StateView) -> None:
        with contextlib.suppress(TimeoutError):
            await watcher.wait_until(lambda w: w.state is not None and settled(w.state) == settled(state), 10)
        assert watcher.state is not None
        assert differences(settled(watcher.state).model_dump(), settled(state).model_dump()) == []
        for ids in id_runs(watcher.seen):
            assert ids == sorted(set(ids))
        terminal = [e.turn_id for e in watcher.seen if isinstance(e.data, ChatComplete | ChatError)]
        assert len(terminal) == len(set(terminal))


def id_runs(seen: list[Envelope]) -> list[list[EventCursor]]:
    """The ids between two snapshots; a snapshot replaces all the client has, so the ids after it begin anew."""
    runs: list[list[EventCursor]] = [[]]
    for envelope in seen:
        if isinstance(envelope.data, StreamSnapshot):
            runs.append([])
        if envelope.id and (cursor := try_parse_cursor(envelope.id)):
            runs[-1].append(cursor)
    return runs


def differences(seen: object, truth: object, place: str = "") -> list[str]:
    """Where two dumps differ, in words."""
    if isinstance(seen, dict) and isinstance(truth, dict):
        return [d for key in truth for d in differences(seen.get(key), truth[key], f"{place}.{key}")]
    if isinstance(seen, list | tuple) and isinstance(truth, list | tuple) and len(seen) == len(truth):
        return [d for n, pair in enumerate(zip(seen, truth, strict=True)) for d in differences(*pair, f"{place}[{n}]")]
    return [] if seen == truth else [f"{place}: seen {seen!r}, but it is {truth!r}"]


def settled(state: StateView) -> StateView:
    """A state without what differs by the moment of reading: the cursor, and times the conversation's row carries."""
    conversation = state.conversation.model_copy(update={"last_activity_at": ""})
    return state.model_copy(update={"cursor": "", "conversation": conversation})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One Postgres, one Redis server, two ingresses and two workers with the scripted model and short leases."""
    script = Path(__file__).with_name("scripts.toml")
    env = {"EVERTURN_MODEL": f"scripted:{script}", "LEASE_S": LEASE_S}
    home = tmp_path_factory.mktemp("platform")
    async with Platform(home, ingresses=2, workers=2, env=env, durable=False) as platform:
        opened = Stage(platform)
        yield opened
        await opened.quit()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def offline_stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """The platform as `make run` starts it, with two ingresses and the offline model."""
    home = tmp_path_factory.mktemp("offline")
    env = {"EVERTURN_MODEL": "offline", "OFFLINE_DELAY_MS": "1"}
    async with Platform(home, ingresses=2, workers=2, env=env, durable=False) as platform:
        opened = Stage(platform)
        yield opened
        await opened.quit()


@pytest.fixture(scope="module")
def make_stage() -> Callable[[Platform], Stage]:
    """For tests that start a platform with settings of their own."""
    return Stage
