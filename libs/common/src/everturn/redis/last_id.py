"""The newest id that a conversation's event stream ever had."""

from typing import Any

from redis.exceptions import ResponseError

from everturn.model.ids import ConversationId
from everturn.model.leases import EventCursor
from everturn.redis.calls import PUBLISH_LIMIT_S, limited
from everturn.redis.entries import read_id, stream_key


async def load_last_id(client: Any, conversation_id: ConversationId) -> EventCursor | None:
    """None when there is no such stream; a stream whose entries are all trimmed away still has its last id."""
    async with limited(PUBLISH_LIMIT_S):
        try:
            info = await client.xinfo_stream(stream_key(conversation_id))
        except ResponseError as error:
            if "no such key" in str(error):
                return None
            raise
    return read_id(info["last-generated-id"])
