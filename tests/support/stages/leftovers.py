"""I7: what a conversation at rest may not leave behind: a lease, an unsettled call, an untold end, half a file."""

import asyncio

from redis import Redis

from everturn.model.identity import Lane
from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

LIMIT_S = 20.0
"""Several times what a sweep and a lease of the tests take."""
LOOK_EVERY_S = 0.1

_LEFT = """
SELECT 'lease of ' || owner FROM lease WHERE conversation_id = '{id}'
UNION ALL SELECT 'open turn ' || id FROM turn WHERE conversation_id = '{id}' AND status IN ('queued', 'running')
UNION ALL SELECT 'untold end of ' || id FROM turn WHERE conversation_id = '{id}' AND announced_at IS NULL
    AND status <> 'waiting'
UNION ALL SELECT 'unsettled call ' || call_id FROM tool_effect e WHERE conversation_id = '{id}' AND state = 'intended'
    AND NOT EXISTS (SELECT FROM turn t WHERE t.id = e.turn_id AND t.status = 'waiting')
UNION ALL SELECT 'artifact of nobody ' || id FROM artifact a WHERE conversation_id = '{id}'
    AND NOT EXISTS (SELECT FROM turn t WHERE t.id = a.turn_id) AND a.kind <> 'attachment'
"""


async def check_nothing_left(platform: Platform, conversation_id: str) -> None:
    """Waits for it as long as a sweeper may need; then says what is left."""
    left: list[str] = []
    for _ in range(int(LIMIT_S / LOOK_EVERY_S)):
        left = await asyncio.to_thread(_find_left, platform, conversation_id)
        if not left:
            return
        await asyncio.sleep(LOOK_EVERY_S)
    raise AssertionError(f"left of {conversation_id}: {', '.join(left)}")


def _find_left(platform: Platform, conversation_id: str) -> list[str]:
    rows = platform.postgres.run_sql(_LEFT.format(id=conversation_id), database=DATABASE).splitlines()
    temporary = platform.home.objects / "tmp"
    files = [f"temporary file {file.name}" for file in temporary.iterdir()] if temporary.is_dir() else []
    with Redis.from_url(platform.redis.url, decode_responses=True) as redis:
        rings = [f"a doorbell on {lane}" for lane in Lane if conversation_id in redis.lrange(f"turns:{lane}", 0, -1)]
    return [*rows, *files, *rings]
