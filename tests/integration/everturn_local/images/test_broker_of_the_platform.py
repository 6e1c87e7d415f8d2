"""The broker as a part of the platform, with a real engine; other services are left out. Starts two servers."""

import asyncio
from pathlib import Path

from everturn_local.images.engine import Engine
from everturn_local.supervision.platform import Platform
from everturn_local.supervision.specs import BROKER, build_broker_spec


async def is_served(socket: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def test_a_broker_is_started_kept_alive_and_stopped(engine: Engine, executor_image: str, tmp_path: Path):
    platform = Platform(
        tmp_path / "home",
        durable=False,
        containers=True,
        specs=lambda around, _: [build_broker_spec(around, workers=1)],
    )

    async with platform:
        socket = platform.home.broker_socket
        first = platform.pid(BROKER)
        assert await is_served(socket)

        await platform.kill_and_wait(BROKER)

        assert platform.pid(BROKER) not in (None, first)
        assert await is_served(socket)
    assert not await is_served(socket)
