"""Many streams and sockets on one ingress see the same events in the same order."""

from typing import Any

import pytest
from parts.followers import Followers, allow_files

STREAMS, SOCKETS = 100, 50


@pytest.mark.timeout(240)
async def test_a_hundred_streams_and_fifty_sockets_get_the_same_ordered_events(
    start_ingress: Any, chat: Any, worker: Any
) -> None:
    allow_files(8192)
    ingress = start_ingress(STREAMS_MAX_PER_USER="5000", STREAM_HEARTBEAT_S="60")
    conversation = (await chat.send("hello"))["conversation_id"]
    await worker.claim(conversation)
    (start,) = await worker.say(conversation, "start")
    followers = Followers(ingress.url, conversation, start)

    try:
        await followers.open_streams(STREAMS)
        await followers.open_sockets(SOCKETS)
        ids = [each for n in range(20) for each in await worker.say(conversation, f"{n}a", f"{n}b")]
        got = await followers.collect(ids[-1])
    finally:
        await followers.close()

    assert len(got) == STREAMS + SOCKETS
    assert all(each == ids for each in got)
    assert ingress.alive()
