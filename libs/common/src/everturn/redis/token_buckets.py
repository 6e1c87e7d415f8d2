"""Token buckets in Redis: one script draws by the server's time, so that processes with wrong clocks agree."""

from typing import Any

from redis.asyncio import Redis

from everturn.model.limits.token_bucket import SECOND_US, Draw, Limit
from everturn.redis.calls import CALL_LIMIT_S, limited

# The arithmetic is that of everturn.model.limits.token_bucket.draw_token; the contract compares them. Numbers are
# doubles, which hold microseconds since 1970 exactly.
_DRAW = """
local interval, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kept = redis.call('HMGET', KEYS[1], 'full', 'told')
local full = math.max(tonumber(kept[1]) or 0, now)
local told = tonumber(kept[2]) or 0
local after = full + interval
local taken = after - now <= window
if taken then
  full = after
else
  told = math.min(math.max(after - window, told + interval), now + window)
end
redis.call('HSET', KEYS[1], 'full', string.format('%.0f', full), 'told', string.format('%.0f', told))
redis.call('PEXPIRE', KEYS[1], math.ceil((math.max(full, told) - now) / 1000) + 1000)
local left, wait = 0, 0
if taken then left = math.floor((window - (full - now)) / interval) else wait = told - now end
return {taken and 1 or 0, left, string.format('%.0f', wait), string.format('%.0f', full - now)}
"""


class RedisTokenBuckets:
    """`bucket:<key>` expires when it is full, so there are never more than callers within a window."""

    def __init__(self, client: Redis) -> None:
        # The client computes the script's hash once and sends the text only where the server does not know it.
        self._script: Any = client.register_script(_DRAW)

    async def draw(self, key: str, limit: Limit) -> Draw:
        async with limited(CALL_LIMIT_S):
            taken, left, wait_us, full_us = await self._script(
                keys=[f"bucket:{key}"], args=[limit.interval_us, limit.window_us]
            )
        return Draw(bool(taken), int(left), int(wait_us) / SECOND_US, int(full_us) / SECOND_US)
