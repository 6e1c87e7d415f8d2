"""F4: one guest can't fill the shared Redis."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from helpers.forks import ForkingSpawn
from helpers.homes import copy_home
from helpers.waiting import wait_until
from redis import Redis

from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

MIB = 1 << 20
MAX_MEMORY = 48 * MIB
MESSAGES = 45
"""Of a megabyte each: kept for an hour they need 1.33 MB of Redis, more than there is."""
MESSAGE = {"text": "Hello. " + "x" * 990_000}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def platform(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Platform]:
    script = Path(__file__).with_name("fairness_script.toml")
    # Without a rate limit a guest does in a minute what takes ten with it.
    env = {
        "EVERTURN_MODEL": f"scripted:{script}",
        "GUEST_SCOPES": "default/default",
        "RATE_LIMITS_WRITES": "anonymous=off",
    }
    home = copy_home(tmp_path_factory.mktemp("platform"))
    async with Platform(home, workers=2, env=env, durable=False, spawn=ForkingSpawn()) as opened:
        with Redis.from_url(opened.redis.url) as redis:
            redis.config_set("maxmemory", MAX_MEMORY)
        yield opened


async def come_in(http: httpx2.AsyncClient) -> dict[str, str]:
    answer = await http.post("/guests/default/default")
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def test_long_messages_of_a_guest_affect_nobody_else(platform: Platform) -> None:
    path = "/conversations/default/default/new/messages"
    statuses: set[int] = set()
    with Redis.from_url(platform.redis.url) as redis:

        def is_done() -> bool:
            return platform.postgres.run_sql(
                "SELECT count(*) FROM turn WHERE status IN ('queued', 'running')", database="everturn"
            ) in {"0"}

        async with httpx2.AsyncClient(base_url=platform.urls[0], trust_env=False, timeout=60) as http:
            hostile, other = await come_in(http), await come_in(http)
            for n in range(MESSAGES):
                statuses.add((await http.post(path, json=MESSAGE, headers=hostile)).status_code)
                if n % 5 == 4:
                    answer = await http.post(path, json={"text": "Hello."}, headers=other)
                    assert answer.status_code == 202, answer.text
            ready = (await http.get("/readyz")).json()
        await wait_until(is_done)
        peak = int(redis.info("memory")["used_memory_peak"])

    assert statuses <= {202, 429}
    assert peak <= 0.9 * MAX_MEMORY, f"{peak / MIB:.0f} MiB"
    assert ready["parts"]["redis memory"]["ok"]
