"""Many streams and sockets on one ingress see the same events in the same order.

`make load` asks for a thousand streams and two hundred sockets, and shows what they took.
"""

import os
import sys
import time
from typing import Any

import pytest
from helpers.followers import Followers, allow_files, measure_memory

STREAMS, SOCKETS = (int(count) for count in os.environ.get("FOLLOWERS", "100/50").split("/"))


@pytest.mark.timeout(240)
async def test_all_streams_and_sockets_get_the_same_ordered_events(start_ingress: Any, chat: Any, worker: Any) -> None:
    allow_files(8192)
    ingress = start_ingress({"streams_of_user": 5000, "heartbeat_s": 60})
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    (start,) = await worker.say(conversation, "start")
    followers = Followers(ingress.url, conversation, start)

    try:
        pid = ingress.process.pid
        streams = await measure_memory(pid, followers.open_streams, STREAMS)
        sockets = await measure_memory(pid, followers.open_sockets, SOCKETS)
        began = time.perf_counter()
        ids = [each for n in range(20) for each in await worker.say(conversation, f"{n}a", f"{n}b")]
        got = await followers.collect(ids[-1])
        took_s = time.perf_counter() - began
    finally:
        await followers.close()

    sys.stdout.write(
        f"\n{STREAMS} streams, {SOCKETS} sockets: {len(ids)} events to each in {took_s:.1f} s; KiB of each idle stream "
        f"{streams.each_kib:.1f}, all {streams.kib}; of each idle socket {sockets.each_kib:.1f}, all {sockets.kib}\n"
    )
    assert len(got) == STREAMS + SOCKETS
    assert all(ids == one for one in got)
    assert ingress.alive()
