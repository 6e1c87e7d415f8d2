"""The last id of a stream outlives its entries."""

from everturn.core.leases import EventCursor
from everturn.events.redis import load_last_id, stream_key
from everturn.redis.calls import build_client
from everturn.wire import Wire
from everturn_testing.core import SequentialIds
from everturn_testing.events.events_contract import entry


async def test_the_last_id_outlives_the_entries(wire: Wire, redis_url: str) -> None:
    conversation_id = SequentialIds().conversation()
    client = build_client(redis_url, name="test")
    assert await load_last_id(client, conversation_id) is None
    await wire.event_writer.publish(conversation_id, entry(4, 1, 2), after=None)

    await client.xtrim(stream_key(conversation_id), maxlen=0, approximate=False)

    assert await load_last_id(client, conversation_id) == EventCursor(4, 2)
    await client.aclose()
    await client.connection_pool.disconnect()
