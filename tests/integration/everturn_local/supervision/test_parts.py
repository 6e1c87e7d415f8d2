"""Servers as parts."""

import signal
from pathlib import Path

from everturn_local.servers.redis import EmbeddedRedis
from everturn_local.supervision.parts import ServerPart


async def test_a_server_is_started_killed_restarted_and_stopped_like_a_service(tmp_path: Path):
    part = ServerPart("redis", EmbeddedRedis(tmp_path / "redis", password="x"))
    assert part.pid is None
    assert await part.wait_exit() == 0

    await part.start()
    part.send(signal.SIGKILL)
    code = await part.wait_exit()
    await part.start()

    assert code == -signal.SIGKILL
    assert part.pid is not None
    await part.stop()
    assert part.pid is None
