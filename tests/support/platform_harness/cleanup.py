"""I7: what an idle conversation may not leave behind: a lease, an unsettled call, an unannounced end, half a file, an
object that no row names, and where there is a broker a container. And F18: no row is without its object."""

import asyncio

from leaks.engines import BrokerView
from redis import Redis

from everturn.core.identity import Lane
from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

LIMIT_S = 20.0
"""Several times what a sweep, a lease, and two passes over the object store take in the tests."""
POLL_EVERY_S = 0.1

_LEFT = """
SELECT 'lease of ' || owner FROM lease WHERE conversation_id = '{id}'
UNION ALL SELECT 'open turn ' || id FROM turn WHERE conversation_id = '{id}' AND status IN ('queued', 'running')
UNION ALL SELECT 'unannounced end of ' || id FROM turn WHERE conversation_id = '{id}' AND announced_at IS NULL
    AND status <> 'waiting'
UNION ALL SELECT 'unsettled call ' || call_id FROM tool_effect e WHERE conversation_id = '{id}' AND state = 'intended'
    AND NOT EXISTS (SELECT FROM turn t WHERE t.id = e.turn_id AND t.status = 'waiting')
UNION ALL SELECT 'detached run ' || run_id FROM detached_run r WHERE conversation_id = '{id}'
    AND NOT EXISTS (SELECT FROM turn t WHERE t.id = r.turn_id AND t.status = 'waiting')
UNION ALL SELECT 'artifact of nobody ' || id FROM artifact a WHERE conversation_id = '{id}'
    AND NOT EXISTS (SELECT FROM turn t WHERE t.id = a.turn_id) AND a.kind <> 'attachment'
UNION ALL SELECT '{named}' || object_key FROM artifact WHERE starts_with(object_key, '{id}/')
UNION ALL SELECT '{named}{id}/manifests/' || id FROM turn WHERE conversation_id = '{id}'
"""
_NAMED = "object "
"""In one question with what is left, because psql takes long to start."""


async def check_nothing_left(platform: Platform, conversation_id: str) -> None:
    """Wait as long as a sweeper may need; then return what remains."""
    left: list[str] = []
    for _ in range(int(LIMIT_S / POLL_EVERY_S)):
        left = await asyncio.to_thread(_find_left, platform, conversation_id)
        if not left:
            return
        await asyncio.sleep(POLL_EVERY_S)
    raise AssertionError(f"left of {conversation_id}: {', '.join(left)}")


def _find_left(platform: Platform, conversation_id: str) -> list[str]:
    printed = platform.postgres.run_sql(_LEFT.format(id=conversation_id, named=_NAMED), database=DATABASE).splitlines()
    rows = [line for line in printed if not line.startswith(_NAMED)]
    named = {line.removeprefix(_NAMED) for line in printed if line.startswith(_NAMED)}
    temporary = platform.home.objects / "tmp"
    files = [f"temporary file {file.name}" for file in temporary.iterdir()] if temporary.is_dir() else []
    with Redis.from_url(platform.redis.url, decode_responses=True) as redis:
        rings = [f"a doorbell on {lane}" for lane in Lane if conversation_id in redis.lrange(f"turns:{lane}", 0, -1)]
    return [*rows, *files, *rings, *_find_objects(platform, conversation_id, named), *_find_containers(platform)]


def _find_objects(platform: Platform, conversation_id: str, named: set[str]) -> list[str]:
    """Of a store that is a folder. Tests that keep files elsewhere look there themselves."""
    keys = find_keys(platform, conversation_id)
    orphans = [f"orphan {key}" for key in keys if key not in named and _find_owner(key) not in named]
    is_here = any(each.name != "tmp" for each in platform.home.objects.iterdir())
    lost = [f"row without {key}" for key in named - keys if is_here and "/manifests/" not in key]
    return [*orphans, *lost]


def _find_owner(key: str) -> str:
    """The row of a manifest, or of the object of one upload."""
    return key.partition(".")[0] if "/manifests/" in key else key.rpartition(".")[0]


def find_keys(platform: Platform, conversation_id: str) -> set[str]:
    """The objects of a conversation, in a store that is a folder."""
    root = platform.home.objects
    return {str(path.relative_to(root)) for path in (root / conversation_id).rglob("*") if path.is_file()}


def _find_containers(platform: Platform) -> list[str]:
    if "broker" not in platform.reports:
        return []
    view = BrokerView(str(platform.home.broker_socket))
    try:
        return sorted(view.load_left())
    finally:
        view.close()
