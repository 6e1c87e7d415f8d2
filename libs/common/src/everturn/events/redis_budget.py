"""How many bytes the event streams of a conversation, a user and a tenant can hold, and what is removed when.

Postgres has all content of a stream, so removing entries loses nothing: a reader that was behind gets a gap and a
snapshot. In addition to the streams there are two kinds of sorted sets. `events:bytes:user:<user>` has the bytes of
each stream of a user, `events:bytes:tenant:<tenant>` those of each user of a tenant, and their sum as the member `*`.
Users and tenants are hashes. `events:ended` has the announced ends of turns, by time.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from redis.asyncio import Redis

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.events.cursor import EventCursor
from everturn.events.stream import RedisUse
from everturn.queue.redis import PROBE, PROBE_S
from everturn.redis.calls import CALL_LIMIT_S, PUBLISH_LIMIT_S, limited

MIB: Final = 1 << 20
KEEP_ENDED_S: Final = 45.0
"""How long the events of an ended turn stay for readers that reconnect. The next trim removes them, within a minute."""
ACCOUNT_KEEP_S: Final = 7_200
"""Longer than streams are kept: bytes of expired streams in an account are corrected when they matter."""
TRIM_AT_ONCE: Final = 200
PROBE_LIMIT_S: Final = 0.5
"""Time limit for reading the memory and storing a value in one call, which accepting a message waits for."""
DEGRADED_SHARE: Final = 0.8
"""Share of Redis' memory from which readiness reports it as degraded."""
_ENDED: Final = "events:ended"

# Removes all entries of a stream; its last id stays. Defined for both scripts below.
_FORGET = """
local function forget(tenant, user, conversation)
  local account = 'events:bytes:user:' .. user
  redis.call('XTRIM', 'events:{' .. conversation .. '}', 'MAXLEN', 0)
  local had = tonumber(redis.call('ZSCORE', account, conversation) or '0')
  redis.call('ZREM', account, conversation)
  redis.call('ZINCRBY', tenant, -had, user)
  redis.call('ZINCRBY', tenant, -had, '*')
end
"""

# ARGV: tenant, user, conversation, bytes of the new entry, and the bounds of a stream, a user, a tenant. A stream above
# its own bound is emptied itself. Otherwise the largest others of its user are, then those of its tenant's largest
# users: the stream being written is being read.
MAKE_ROOM = (
    _FORGET
    + """
local function make_room(tenant_name, user, conversation, size, stream_max, user_max, tenant_max)
  local tenant, account = 'events:bytes:tenant:' .. tenant_name, 'events:bytes:user:' .. user
  -- The largest member other than `member`; `member` if it is the only one.
  local function other_than(member, key)
    local first = redis.call('ZREVRANGE', key, 0, 1)
    return first[1] == member and first[2] or first[1]
  end
  local function score(key, member) return tonumber(redis.call('ZSCORE', key, member) or '0') end
  if score(account, conversation) + size > stream_max then forget(tenant, user, conversation) end
  for _ = 1, 1000 do
    if score(tenant, user) + size <= user_max then break end
    local largest = other_than(conversation, account)
    if not largest then redis.call('ZREM', tenant, user) break end
    forget(tenant, user, largest)
  end
  for _ = 1, 1000 do
    if score(tenant, '*') + size <= tenant_max then break end
    local heaviest = other_than('*', tenant)
    local largest = heaviest and other_than(conversation, 'events:bytes:user:' .. heaviest)
    if largest then
      forget(tenant, heaviest, largest)
    elseif heaviest and heaviest ~= '*' then
      redis.call('ZINCRBY', tenant, -score(tenant, heaviest), '*')
      redis.call('ZREM', tenant, heaviest)
    else
      redis.call('DEL', tenant)
      break
    end
  end
end
local function book(tenant_name, user, conversation, size, keep_s)
  local tenant, account = 'events:bytes:tenant:' .. tenant_name, 'events:bytes:user:' .. user
  redis.call('ZINCRBY', account, size, conversation)
  redis.call('ZINCRBY', tenant, size, user)
  redis.call('ZINCRBY', tenant, size, '*')
  redis.call('EXPIRE', account, keep_s)
  redis.call('EXPIRE', tenant, keep_s)
end
"""
)

# The size of what is to be removed is stored, because a following turn adds to the same account, and may have begun.
_NOTE_ENDED = """
local tenant, user, conversation, first_kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local bytes = tonumber(redis.call('ZSCORE', 'events:bytes:user:' .. user, conversation) or '0')
for _, entry in ipairs(redis.call('XRANGE', 'events:{' .. conversation .. '}', first_kept, '+', 'COUNT', 1000)) do
  for _, part in ipairs(entry[2]) do bytes = bytes - #part end
end
bytes = math.max(0, bytes)
local now = tonumber(redis.call('TIME')[1])
redis.call('ZADD', KEYS[1], now, table.concat({conversation, first_kept, tenant, user, bytes}, ' '))
"""

_TRIM_ENDED = """
local now = tonumber(redis.call('TIME')[1])
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[1]), 'LIMIT', 0, tonumber(ARGV[2]))
local function parse(member) return string.match(member, '^(%S+) (%S+) (%S+) (%S+) (%S+)$') end
-- Trimming first: it is allowed when Redis is out of memory, and what follows is not.
for _, member in ipairs(due) do
  local conversation, first_kept = parse(member)
  if conversation then redis.call('XTRIM', 'events:{' .. conversation .. '}', 'MINID', first_kept) end
end
for _, member in ipairs(due) do
  local conversation, _, tenant_name, user, bytes = parse(member)
  redis.call('ZREM', KEYS[1], member)
  if conversation then
    local tenant, account = 'events:bytes:tenant:' .. tenant_name, 'events:bytes:user:' .. user
    local key = 'events:{' .. conversation .. '}'
    local had = tonumber(redis.call('ZSCORE', account, conversation) or '0')
    local gone = math.min(had, tonumber(bytes))
    if redis.call('EXISTS', key) == 0 or redis.call('XLEN', key) == 0 then gone = had end
    if gone >= had then redis.call('ZREM', account, conversation)
    else redis.call('ZINCRBY', account, -gone, conversation) end
    redis.call('ZINCRBY', tenant, -gone, user)
    redis.call('ZINCRBY', tenant, -gone, '*')
    redis.call('EXPIRE', tenant, ARGV[3])
    if tonumber(redis.call('ZSCORE', tenant, user) or '0') <= 0 then redis.call('ZREM', tenant, user) end
  end
end
return #due
"""


@dataclass(frozen=True, slots=True)
class StreamBudget:
    """Bytes of events as encoded: Redis needs about a third more."""

    stream_bytes: int = 4 * MIB
    user_bytes: int = 16 * MIB
    tenant_bytes: int = 128 * MIB


def hash_owner(principal: Principal) -> tuple[str, str]:
    """The hashes of the tenant and of the user. A user is one name in one tenant, in any project."""
    tenant = hashlib.sha256(principal.tenant.encode()).hexdigest()[:32]
    user = hashlib.sha256(f"{principal.tenant}\0{principal.user_id}".encode()).hexdigest()[:32]
    return tenant, user


class RedisStreamMemory:
    """Measures the use of Redis' memory, in total and by user; removes what ended turns no longer need."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client
        self._note_ended = cast(Any, client.register_script(_NOTE_ENDED))
        self._trim_ended = cast(Any, client.register_script(_TRIM_ENDED))

    async def note_ended(self, conversation_id: ConversationId, owner: Principal, last: EventCursor) -> None:
        tenant, user = hash_owner(owner)
        args = tenant, user, conversation_id, str(EventCursor(last.fence, last.n + 1))
        async with limited(PUBLISH_LIMIT_S):
            await self._note_ended(keys=[_ENDED], args=args)

    async def trim_ended(self, *, after_s: float = KEEP_ENDED_S) -> int:
        trimmed = 0
        while True:
            async with limited(PUBLISH_LIMIT_S):
                count = int(await self._trim_ended(keys=[_ENDED], args=[after_s, TRIM_AT_ONCE, ACCOUNT_KEEP_S]))
            trimmed += count
            if count < TRIM_AT_ONCE:
                return trimmed

    async def load_use(self) -> RedisUse:
        async with limited(CALL_LIMIT_S):
            return _read_use(await self._client.info("memory"))

    async def probe(self, owner: Principal) -> RedisUse:
        tenant, user = hash_owner(owner)
        async with limited(PROBE_LIMIT_S), self._client.pipeline(transaction=False) as pipeline:
            pipeline.info("memory")
            pipeline.zscore(f"events:bytes:tenant:{tenant}", user)
            pipeline.set(PROBE, "1", ex=PROBE_S)
            memory, of_user, stored = await pipeline.execute(raise_on_error=False)
            for reply in (memory, of_user):
                if isinstance(reply, Exception):
                    raise reply
        refusal = str(stored) if isinstance(stored, Exception) else ""
        return replace(_read_use(memory), of_user=int(of_user or 0), refusal=refusal)

    async def check(self) -> None:
        """Raise Unavailable when Redis is close to its memory limit."""
        use = await self.load_use()
        if use.share >= DEGRADED_SHARE:
            raise Unavailable(f"Redis uses {use.share:.0%} of its maxmemory.")


def _read_use(memory: Mapping[str, Any]) -> RedisUse:
    return RedisUse(used=int(memory["used_memory"]), limit=int(memory.get("maxmemory", 0)))
