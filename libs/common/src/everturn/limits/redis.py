"""Token buckets in Redis: scripts compare and draw by the server's time, so that wrong clocks do no harm."""

from typing import Any

from redis.asyncio import Redis

from everturn.limits.token_buckets import SECOND_US, Draw, Level, Limit
from everturn.redis.calls import CALL_LIMIT_S, limited

# The arithmetic is that of everturn.limits.token_buckets; the contract tests both. Numbers are doubles, which represent
# microseconds since 1970 exactly.
_BUCKET = """
local interval, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kept = redis.call('HMGET', KEYS[1], 'full', 'retry', 'returns')
local full = math.max(tonumber(kept[1]) or 0, now)
local retry = tonumber(kept[2]) or 0
local returns = tonumber(kept[3]) or 0
local function text(n) return string.format('%.0f', n) end
local function keep()
  redis.call('HSET', KEYS[1], 'full', text(full), 'retry', text(retry), 'returns', text(returns))
  redis.call('PEXPIRE', KEYS[1], math.ceil((math.max(full, retry, returns) - now) / 1000) + 1000)
end
local function left() return math.max(0, math.floor((window - (full - now)) / interval)) end
"""
_DRAW = f"""{_BUCKET}
local after = full + interval
local taken = after - now <= window
if taken then
  full = after
else
  retry = math.min(math.max(after - window, retry + interval), now + window)
end
keep()
return {{taken and 1 or 0, taken and left() or 0, text(taken and 0 or retry - now), text(full - now)}}
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
