"""Many streams and sockets on one ingress see the same events in the same order.

`make load` asks for a thousand streams and two hundred sockets, and shows what they took.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from parts.followers import Followers, allow_files

STREAMS, SOCKETS = (int(count) for count in os.environ.get("FOLLOWERS", "100/50").split("/"))


def load_rss_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


@pytest.mark.timeout(240)
async def test_all_streams_and_sockets_get_the_same_ordered_events(start_ingress: Any, chat: Any, worker: Any) -> None:
    allow_files(8192)
    ingress = start_ingress(STREAMS_MAX_PER_USER="5000", STREAM_HEARTBEAT_S="60")
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    (start,) = await worker.say(conversation, "start")
    followers = Followers(ingress.url, conversation, start)

    try:
        rss = [load_rss_kib(ingress.process.pid)]
        await followers.open_streams(STREAMS)
        rss.append(load_rss_kib(ingress.process.pid))
        await followers.open_sockets(SOCKETS)
        rss.append(load_rss_kib(ingress.process.pid))
        began = time.perf_counter()
        ids = [each for n in range(20) for each in await worker.say(conversation, f"{n}a", f"{n}b")]
        got = await followers.collect(ids[-1])
        took_s = time.perf_counter() - began
        rss.append(load_rss_kib(ingress.process.pid))
    finally:
        await followers.close()

    each = (rss[1] - rss[0]) / STREAMS, (rss[2] - rss[1]) / SOCKETS
    sys.stdout.write(
        f"\n{STREAMS} streams, {SOCKETS} sockets: {len(ids)} events to each in {took_s:.1f} s; "
        f"KiB of the ingress: {rss}, each idle stream {each[0]:.1f}, each idle socket {each[1]:.1f}\n"
    )
    assert len(got) == STREAMS + SOCKETS
    assert all(ids == one for one in got)
    assert ingress.alive()
