"""P16: what an entry costs one reader of the event streams that follows 5,000 different conversations, against one.

CPU of this process is compared, which publishes and reads; the publishing is the same in both. Entries come one after
another, in 20 of the conversations. Needs nothing running: it starts its own Redis in a folder that it removes.
"""

import asyncio
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from helpers.goals import Goal, build_goal, run_goals

from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.stream import EncodedEvent, Entry
from everturn.redis_drivers import open_redis_drivers
from everturn_local.servers.redis import EmbeddedRedis
from everturn_testing.core import SequentialIds
from everturn_testing.events.events_contract import Follows

ACTIVE = 20
PAYLOAD = b'{"type":"chat.delta","data":{"text":"tok "}}'
LIMIT_S = 120.0


def measure(conversations: int, entries: int) -> list[Goal]:
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
        server = EmbeddedRedis(Path(folder) / "redis", password="bench", log=Path(folder) / "redis.log", durable=False)
        server.start()
        try:
            one = asyncio.run(measure_with(server.url, 1, entries))
            server.empty()
            many = asyncio.run(measure_with(server.url, conversations, entries))
        finally:
            server.stop()
    goal = f"P16 an entry with {conversations} conversations vs with one, ms of CPU"
    return [build_goal(goal, many, one, 1.5)]


async def measure_with(url: str, count: int, entries: int) -> float:
    """Milliseconds of CPU for one entry."""
    ids = SequentialIds()
    conversations = [ids.conversation() for _ in range(count)]
    last = dict.fromkeys(conversations[:ACTIVE], ORIGIN)
    began_s = 0.0
    async with (
        asyncio.timeout(LIMIT_S),
        open_redis_drivers(url, name="bench") as drivers,
        aclosing(drivers.event_reader.follow(Follows(dict.fromkeys(conversations, ORIGIN)))) as following,
    ):
        for number in range(-ACTIVE, entries):
            if number == 0:  # every stream exists, and the reader waits
                began_s = time.process_time()
            conversation = conversations[number % min(ACTIVE, count)]
            cursor = EventCursor(1, last[conversation].n + 1)
            entry = Entry(last[conversation], (EncodedEvent(cursor, "chat.delta", PAYLOAD),))
            await drivers.event_writer.publish(conversation, entry, after=None)
            last[conversation] = cursor
            got, read = await anext(following)
            assert (got, read.events[-1].id) == (conversation, cursor)
    return (time.process_time() - began_s) / entries * 1e3


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, conversations=5_000, entries=300))
