"""Token buckets and waiting rooms in Redis: scripts compare and draw by the server's time, so that wrong clocks do no
harm."""

from typing import Any, Final

from redis.asyncio import Redis

from everturn.limits.token_buckets import SECOND_US, Draw, Level, Limit
from everturn.limits.waiting_rooms import (
    GRACE_US,
    MAX_AGE_US,
    MAX_PLACES,
    MAX_WAIT_US,
    NEAR_US,
    OVER_ROOM,
    PLACES_EACH,
    SLACK_US,
    SPACING,
    STORING_US,
    Entry,
    RoomLoad,
    Visitor,
)
from everturn.redis.calls import CALL_LIMIT_S, limited

# The arithmetic is that of everturn.limits.token_buckets; the contract tests both. Numbers are doubles, which represent
# microseconds since 1970 exactly.
_BUCKET = """
local interval, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kept = redis.call('HMGET', KEYS[1], 'full', 'told', 'returns')
local full = math.max(tonumber(kept[1]) or 0, now)
local told = tonumber(kept[2]) or 0
local returns = tonumber(kept[3]) or 0
local function text(n) return string.format('%.0f', n) end
local function keep()
  redis.call('HSET', KEYS[1], 'full', text(full), 'told', text(told), 'returns', text(returns))
  redis.call('PEXPIRE', KEYS[1], math.ceil((math.max(full, told, returns) - now) / 1000) + 1000)
end
local function left() return math.max(0, math.floor((window - (full - now)) / interval)) end
"""
_DRAW = f"""{_BUCKET}
local after = full + interval
local taken = after - now <= window
if taken then
  full = after
else
  told = math.min(math.max(after - window, told + interval), now + window)
end
keep()
return {{taken and 1 or 0, taken and left() or 0, text(taken and 0 or told - now), text(full - now)}}
"""
_GIVE_BACK = f"""{_BUCKET}
local after = math.max(returns, now) + interval
if after - now <= window then
  full, returns = math.max(full - interval, now), after
  keep()
end
return {{left(), text(full - now)}}
"""


class RedisTokenBuckets:
    """`bucket:<key>` expires when it is full, so there are at most as many buckets as callers within a window."""

    def __init__(self, client: Redis) -> None:
        # The client computes the script's hash once and sends the text only if the server does not know it.
        self._draw: Any = client.register_script(_DRAW)
        self._give_back: Any = client.register_script(_GIVE_BACK)

    async def draw(self, key: str, limit: Limit) -> Draw:
        taken, left, wait_us, full_us = await self._run(self._draw, key, limit)
        return Draw(bool(taken), int(left), int(wait_us) / SECOND_US, int(full_us) / SECOND_US)

    async def give_back(self, key: str, limit: Limit) -> Level:
        left, full_us = await self._run(self._give_back, key, limit)
        return Level(int(left), int(full_us) / SECOND_US)

    async def _run(self, script: Any, key: str, limit: Limit) -> Any:
        async with limited(CALL_LIMIT_S):
            return await script(keys=[f"bucket:{key}"], args=[limit.interval_us, limit.window_us])


# Waiting rooms in Redis: a sorted set of places by their time for each room, and one for each caller, with passes.

_UNNAMED: Final = "-"
"""Prefix of the places of requests without a name; no hash begins with it."""
_PASS: Final = "+"  # noqa: S105 - opens no door but this
"""Prefix of the passes in the set of a caller; the set of the room has none."""

# The same as everturn.limits.waiting_rooms; the contract tests both. The scripts always write, so that a server without
# memory fails before anything is accepted.
_ROOM = f"""
local each, places, grace, longest = {PLACES_EACH}, {MAX_PLACES}, {GRACE_US}, {MAX_WAIT_US}
local room, mine, caller, request = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function text(n) return string.format('%.0f', n) end
local function forget(name)
  redis.call('ZREM', mine, name, '{_PASS}' .. name)
  redis.call('ZREM', room, caller .. ':' .. name)
end
local function tell(at)
  local own = redis.call('ZRANGE', mine, 0, -1, 'WITHSCORES')
  if #own >= 2 * each then return {{0, text(own[#own] - now)}} end
  if redis.call('ZCARD', room) >= places then return {{0, text(longest)}} end
  local name, n = request, 0
  while name == '' do
    if not redis.call('ZSCORE', mine, '{_UNNAMED}' .. n) then name = '{_UNNAMED}' .. n end
    n = n + 1
  end
  redis.call('ZADD', mine, text(at), name)
  redis.call('ZADD', room, text(at), caller .. ':' .. name)
  for _, key in ipairs({{room, mine}}) do redis.call('PEXPIRE', key, math.ceil((longest + grace) / 1000)) end
  return {{0, text(at - now)}}
end
redis.call('SET', room .. ':asked', '1', 'EX', 60)
for _, key in ipairs({{room, mine}}) do redis.call('ZREMRANGEBYSCORE', key, '-inf', text(now - grace)) end
"""
_ENTER = f"""{_ROOM}
local depth, most, interval = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local age, entered = tonumber(ARGV[6]), {{}}
if age >= 0 then
  local since = math.min(age, {MAX_AGE_US}) + {STORING_US}
  entered = {{room .. ':entered', room .. ':entered:' .. ARGV[7]}}
  for sign, key in ipairs(entered) do
    redis.call('ZREMRANGEBYSCORE', key, '-inf', text(now - {MAX_AGE_US + STORING_US}))
    depth = depth + (3 - 2 * sign) * redis.call('ZCOUNT', key, text(now - since), '+inf')
  end
end
local name, told_at = request, nil
if request ~= '' then
  told_at = tonumber(redis.call('ZSCORE', mine, request) or nil)
else
  local own = redis.call('ZRANGE', mine, 0, -1, 'WITHSCORES')
  for n = 1, #own, 2 do
    if not told_at and string.sub(own[n], 1, 1) == '{_UNNAMED}' then name, told_at = own[n], tonumber(own[n + 1]) end
  end
end
local pass_at = tonumber(redis.call('ZSCORE', mine, '{_PASS}' .. name) or nil)
local due = (told_at and told_at <= now + {SLACK_US}) or (pass_at and pass_at <= now + {SLACK_US})
local known = told_at or pass_at
local near = redis.call('ZCOUNT', room, '-inf', text(now + {NEAR_US}))
local admitted = depth + near < most or (due and depth < math.floor(most * {OVER_ROOM}))
if known and request ~= '' and not (admitted or due) then return {{0, text(known - now)}} end
if due or request ~= '' then forget(name) end
if admitted then
  for _, key in ipairs(entered) do
    redis.call('ZADD', key, text(now), text(now) .. ':' .. ARGV[7])
    redis.call('PEXPIRE', key, {(MAX_AGE_US + STORING_US) // 1000})
  end
  return {{1, '0'}}
end
local apart = math.floor(interval * {SPACING})
local last = redis.call('ZREVRANGE', room, 0, 0, 'WITHSCORES')
local at = math.max(now + math.max(1, depth + 1 - most) * apart, (tonumber(last[2]) or 0) + apart)
return tell(math.min(at, now + longest))
"""
_KEEP = f"""{_ROOM}
if request ~= '' and redis.call('ZCARD', mine) < each then
  redis.call('ZADD', mine, text(now + math.min(tonumber(ARGV[3]), longest)), '{_PASS}' .. request)
  redis.call('PEXPIRE', mine, math.ceil((longest + grace) / 1000))
end
"""


class RedisWaitingRooms:
    """`room:{<room>}` and `room:{<room>}:<caller>` expire when their last visitor's time has passed.

    `room:{<room>}:entered` has the visitors admitted within the last seconds, `room:{<room>}:entered:<process>` those
    that one process admitted; the name `process` is unique.
    """

    def __init__(self, client: Redis, *, process: str) -> None:
        self._process = process
        self._enter: Any = client.register_script(_ENTER)
        self._keep: Any = client.register_script(_KEEP)

    async def enter(self, room: str, visitor: Visitor, load: RoomLoad) -> Entry:
        age_us = -1 if load.age_us is None else load.age_us
        numbers = (load.depth, load.room, load.interval_us, age_us, self._process)
        admitted, told = await self._run(self._enter, room, visitor, *numbers)
        return Entry(bool(admitted), int(told) / SECOND_US)

    async def keep(self, room: str, visitor: Visitor, wait_s: float) -> None:
        await self._run(self._keep, room, visitor, int(wait_s * SECOND_US))

    async def _run(self, script: Any, room: str, visitor: Visitor, *more: int | str) -> Any:
        key = f"room:{{{room}}}"
        async with limited(CALL_LIMIT_S):
            return await script(keys=[key, f"{key}:{visitor.caller}"], args=[visitor.caller, visitor.request, *more])
