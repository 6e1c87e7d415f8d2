"""P15: what an ingress takes in memory: idle, under idle event streams, and under idle subscribed sockets.

All clients follow one conversation from its last event on. The memory of each client is reported as a slope, after a
fifth of them have warmed the process up. Needs nothing running: it starts its own platform in a temporary folder.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from helpers.followers import (
    HELLO_SCRIPT,
    Followers,
    allow_files,
    hold_conversation,
    load_rss_kib,
    measure_memory,
    spawn_wide,
)
from helpers.goals import Goal, build_goal, run_goals

from everturn_client.client import EverturnClient
from everturn_local.supervision.platform import Platform

STREAMS_MIB = 45.0
"""Of a thousand of them."""
IDLE_MIB = 110.0
SOCKET_KIB = 64.0
"""What a subscribed socket took when it was measured first."""
OPEN_FILES = 8192


def measure(streams: int, sockets: int) -> list[Goal]:
    allow_files(OPEN_FILES)
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
        return asyncio.run(measure_in(Path(folder), streams, sockets))


async def measure_in(folder: Path, streams: int, sockets: int) -> list[Goal]:
    script = folder / "script.toml"
    script.write_text(HELLO_SCRIPT)
    env = {"EVERTURN_MODEL": f"scripted:{script}"}
    async with (
        Platform(folder / "home", workers=1, env=env, durable=False, auto_restart=False, spawn=spawn_wide) as platform,
        EverturnClient(platform.urls[0]) as client,
    ):
        pid = platform.pid("ingress-1")
        assert pid is not None
        idle = load_rss_kib(pid)
        conversation_id, last = await hold_conversation(client)
        followers = Followers(platform.urls[0], conversation_id, last)
        try:
            over_http = await measure_memory(pid, followers.open_streams, streams)
            over_sockets = await measure_memory(pid, followers.open_sockets, sockets)
        finally:
            await followers.close()
    allowed_kib = STREAMS_MIB * 1024 / 1000
    return [
        build_goal("P15 idle ingress vs its goal, MiB", idle / 1024, IDLE_MIB, 1.0),
        build_goal(f"P15 {streams} idle streams, KiB each", over_http.kib / streams, allowed_kib, 1.0),
        build_goal("P15 each further idle stream, KiB", over_http.each_kib, allowed_kib, 1.0),
        build_goal("each further subscribed socket vs once, KiB", over_sockets.each_kib, SOCKET_KIB, 1.0),
    ]


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, streams=1000, sockets=200))
