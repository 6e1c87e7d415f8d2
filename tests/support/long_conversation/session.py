"""One conversation with a real worker over Postgres, Redis and files; only the model is ours."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

from chat_proc.bootstrap import open_worker
from chat_proc.catalog.tool import Tool
from chat_proc.models.roles import ModelChoice, ModelRoles, RoleChoices
from chat_proc.settings import WorkerSettings
from everturn.core.identity import Principal
from everturn.events.cursor import ORIGIN
from everturn.events.model import TERMINAL_TYPES, parse_envelope
from everturn.memory.postgres_search import PostgresMemorySearch
from everturn.memory.search import Scope
from everturn.models.port import LanguageModel
from everturn.postgres.pool import Database, open_database
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn.timeline.turns import Turn
from everturn.turns.inbox import IncomingMessage
from everturn.turns.postgres_inbox import PostgresInbox
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_local.servers.databases import DatabaseUrls
from everturn_testing.core import SequentialIds
from everturn_testing.events.events_contract import Follows

ANN = Principal("acme", "main", "ann")


class LongConversation:
    """Says one message after another and waits for each turn's end by the client's stream."""

    def __init__(self, database: Database, redis_drivers: RedisDrivers) -> None:
        self._inbox = PostgresInbox(database)
        self._timelines = PostgresTimelines(database)
        self._search = PostgresMemorySearch(database)
        self._redis = redis_drivers
        self._ids = SequentialIds()
        self._said = False
        self.conversation_id = self._ids.conversation()
        self._follows = Follows({self.conversation_id: ORIGIN})

    async def say(self, text: str, limit_s: float = 60.0) -> Turn:
        """One message to its end."""
        turn_id = self._ids.turn()
        message = IncomingMessage(
            self.conversation_id, not self._said, text, (), turn_id=turn_id, signal_id=self._ids.signal()
        )
        self._said = True
        receipt = await self._inbox.accept_message(ANN, message, None)
        await self._redis.doorbells.ring(receipt.lane, self.conversation_id)
        async with asyncio.timeout(limit_s), aclosing(self._redis.event_reader.follow(self._follows)) as entries:
            async for _, entry in entries:
                self._follows.followed[self.conversation_id] = entry.events[-1].id
                events = [parse_envelope(event.payload) for event in entry.events]
                if any(event.type in TERMINAL_TYPES and event.turn_id == turn_id for event in events):
                    return await self._timelines.load_turn(ANN, turn_id)
        raise AssertionError("the stream ended before the turn")

    async def wait_for_index(self, limit_s: float = 60.0) -> None:
        """Turns end faster than the indexer, which rests while turns run, makes them searchable."""
        async with asyncio.timeout(limit_s):
            scope = Scope(self.conversation_id)
            while await self._search.count_unindexed(ANN, scope):  # noqa: ASYNC110 - there is no event for the index
                await asyncio.sleep(0.1)


@asynccontextmanager
async def open_long_conversation(
    urls: DatabaseUrls, redis_url: str, folder: Path, *, models: dict[str, LanguageModel], tools: Sequence[Tool]
) -> AsyncGenerator[LongConversation]:
    """`models` by role; `decision` is one of them."""
    settings = WorkerSettings(
        mode="development",
        database_url=urls.worker,
        redis_url=redis_url,
        objects_url=folder.as_uri(),
        max_iterations=20,
    )
    choices = {role: ModelChoice("anthropic", role, "the test's own") for role in models}
    roles = ModelRoles(RoleChoices(choices["decision"], choices), lambda choice: models[choice.name])
    async with AsyncExitStack() as stack:
        worker, _ = await stack.enter_async_context(open_worker(settings, models=roles, tools=tools))
        ingress = await stack.enter_async_context(open_database(urls.ingress, pool_size=4, application_name="session"))
        redis_drivers = await stack.enter_async_context(open_redis_drivers(redis_url, name="session"))
        ready = asyncio.Event()
        running = asyncio.create_task(worker.run(ready.set))
        await ready.wait()
        try:
            yield LongConversation(ingress, redis_drivers)
        finally:
            worker.stop()
            await running
