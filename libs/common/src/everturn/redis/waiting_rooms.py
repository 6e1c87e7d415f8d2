"""Waiting rooms in Redis: one sorted set for each, of callers by the time they were told, changed by one script."""

from typing import Any

from redis.asyncio import Redis

from everturn.model.limits.token_bucket import SECOND_US
from everturn.model.limits.waiting_room import (
    GRACE_US,
    MAX_PLACES,
    MAX_WAIT_US,
    NEAR_US,
    OVER_ROOM,
    PLACES_EACH,
    SLACK_US,
    Entry,
    RoomLoad,
)
from everturn.redis.calls import CALL_LIMIT_S, limited

# The same as everturn.model.limits.waiting_room.enter_room; the contract compares them. It always writes, so that a
# server without memory says so before anything is accepted.
_ENTER = """
local room, caller = KEYS[1], ARGV[1]
local depth, most, interval = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local each, places, grace, near = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local slack, longest, over = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function text(n) return string.format('%.0f', n) end
redis.call('SET', room .. ':asked', '1', 'EX', 60)
redis.call('ZREMRANGEBYSCORE', room, '-inf', text(now - grace))
local names, own, first, first_at, last_at, free = {}, 0, nil, nil, 0, nil
for n = 1, each do names[n] = caller .. ':' .. n - 1 end
local scores = redis.call('ZMSCORE', room, unpack(names))
for n, name in ipairs(names) do
  local at = tonumber(scores[n] or nil)
  if at then
    own = own + 1
    last_at = math.max(last_at, at)
    if not first or at < first_at then first, first_at = name, at end
  elseif not free then
    free = name
  end
end
local due = first and first_at <= now + slack
local soon = redis.call('ZCOUNT', room, '-inf', text(now + near))
if depth + soon < most or (due and depth < math.floor(most * over)) then
  if first then redis.call('ZREM', room, first) end
  return {1, '0'}
end
if due then
  redis.call('ZREM', room, first)
  own, free = own - 1, first
end
if own >= each then return {0, text(last_at - now)} end
if redis.call('ZCARD', room) >= places then return {0, text(longest)} end
local last = redis.call('ZREVRANGE', room, 0, 0, 'WITHSCORES')
local at = math.max(now + math.max(1, depth + 1 - most) * interval, (tonumber(last[2]) or 0) + interval)
at = math.min(at, now + longest)
redis.call('ZADD', room, text(at), free)
redis.call('PEXPIRE', room, math.ceil((longest + grace) / 1000))
return {0, text(at - now)}
"""
_RULES = (PLACES_EACH, MAX_PLACES, GRACE_US, NEAR_US, SLACK_US, MAX_WAIT_US, OVER_ROOM)


class RedisWaitingRooms:
    """`room:{<room>}` expires when nobody in it is to come any more."""

    def __init__(self, client: Redis) -> None:
        self._script: Any = client.register_script(_ENTER)

    async def enter(self, room: str, caller: str, load: RoomLoad) -> Entry:
        async with limited(CALL_LIMIT_S):
            admitted, wait_us = await self._script(
                keys=[f"room:{{{room}}}"], args=[caller, load.depth, load.room, load.interval_us, *_RULES]
            )
        return Entry(bool(admitted), int(wait_us) / SECOND_US)
