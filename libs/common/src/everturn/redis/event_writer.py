"""The lease holder's end of the event streams: appends entries in order, and never after a newer fence has written."""

from typing import Any, cast

from redis.asyncio import Redis

from everturn.errors import StaleFence
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.model.leases import EventCursor
from everturn.ports.event_stream import ERASED_FENCE, Entry, EventsLost
from everturn.redis.calls import PUBLISH_LIMIT_S, limited
from everturn.redis.entries import build_fields, read_id, stream_key, try_read_entry
from everturn.redis.last_id import load_last_id
from everturn.redis.stream_budget import ACCOUNT_KEEP_S, MAKE_ROOM, StreamBudget, hash_owner

MAX_ENTRIES = 2_000
KEEP_S = 3_600

# The last id comes from XINFO, which still knows it when every entry has been trimmed away. An entry whose id is the
# last one is there already: the answer to its first sending was lost.
_PUBLISH = (
    MAKE_ROOM
    + """
local id, after = ARGV[1], ARGV[2]
local last = '0-0'
local info = redis.pcall('XINFO', 'STREAM', KEYS[1])
if not info.err then
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
  end
end
if tonumber(string.match(last, '^%d+')) > tonumber(string.match(id, '^%d+')) then return 'STALE' end
if last == id then return 'OK' end
if after ~= '' and last ~= after then return 'LOST' end
local tenant, user, conversation, size = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
if user ~= '' then
  make_room(tenant, user, conversation, size, tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]))
end
local added = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], id, unpack(ARGV, 12))
if type(added) == 'table' and added.err then
  if string.find(added.err, 'equal or smaller') then return 'LOST' end
  return added
end
redis.call('EXPIRE', KEYS[1], ARGV[4])
if user ~= '' then book(tenant, user, conversation, size, ACCOUNT_KEEP_S) end
return 'OK'
""".replace("ACCOUNT_KEEP_S", str(ACCOUNT_KEEP_S))
)


class RedisEventWriter:
    """Publishes entries; streams keep about 2,000 of them, within the budget, for an hour after the last."""

    def __init__(self, client: Redis, *, budget: StreamBudget | None = None) -> None:
        self._client: Any = client
        self._budget = budget or StreamBudget()
        self._publish = cast(Any, client.register_script(_PUBLISH))

    async def load_last(self, conversation_id: ConversationId) -> EventCursor | None:
        return await load_last_id(self._client, conversation_id)

    async def load_newest(
        self, conversation_id: ConversationId, *, max_entries: int, before: EventCursor | None = None
    ) -> tuple[Entry, ...]:
        newest = "+" if before is None else f"({before}"
        async with limited(PUBLISH_LIMIT_S):
            rows = await self._client.xrevrange(stream_key(conversation_id), max=newest, count=max_entries)
        return tuple(
            entry for raw_id, fields in reversed(rows) if (entry := try_read_entry(read_id(raw_id), fields)) is not None
        )

    async def publish(
        self,
        conversation_id: ConversationId,
        entry: Entry,
        *,
        after: EventCursor | None,
        owner: Principal | None = None,
    ) -> None:
        head = (str(entry.events[-1].id), "" if after is None else str(after), MAX_ENTRIES, KEEP_S)
        fields, budget = build_fields(entry), self._budget
        tenant, user = ("", "") if owner is None else hash_owner(owner)
        account = (tenant, user, conversation_id, sum(map(len, fields)))
        bounds = (budget.stream_bytes, budget.user_bytes, budget.tenant_bytes)
        async with limited(PUBLISH_LIMIT_S):
            said = await self._publish(keys=[stream_key(conversation_id)], args=[*head, *account, *bounds, *fields])
        match said:
            case b"OK":
                return
            case b"STALE":
                raise StaleFence(conversation_id)
            case _:
                raise EventsLost(conversation_id)

    async def erase(self, conversation_id: ConversationId) -> None:
        """What stays is an empty stream with the highest of all ids: it refuses a worker that has not heard yet."""
        key = stream_key(conversation_id)
        async with limited(PUBLISH_LIMIT_S), self._client.pipeline(transaction=True) as pipeline:
            pipeline.delete(key)
            pipeline.xadd(key, {"": ""}, id=f"{ERASED_FENCE}-0")
            pipeline.xtrim(key, maxlen=0, approximate=False)
            pipeline.expire(key, KEEP_S)
            await pipeline.execute()

    async def trim(self, conversation_id: ConversationId, before: EventCursor) -> None:
        async with limited(PUBLISH_LIMIT_S):
            await self._client.xtrim(stream_key(conversation_id), minid=str(before), approximate=True)
