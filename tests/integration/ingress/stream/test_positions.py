"""A waiting user sees the position of the turn over REST and in the stream, and sees it fall."""

from typing import Any

import httpx2

BASE = "/conversations/default/default"


async def test_receipt_rest_and_stream_report_the_position_as_it_falls(
    client: httpx2.AsyncClient, chat: Any, follow: Any, worker: Any
) -> None:
    first, second, third = [await chat.send("hello") for _ in range(3)]
    at = [sent["receipt"]["position"] for sent in (first, second, third)]
    assert at == [at[0], at[0] + 1, at[0] + 2]
    mine = third["conversation_id"]

    shown = (await client.get(f"{BASE}/{mine}")).json()
    turn = (await client.get(f"{BASE}/{mine}/turns/{third['turn_id']}")).json()
    assert (shown["state"], shown["turn_id"], shown["position"]) == ("queued", third["turn_id"], at[2])
    assert (turn["status"], turn["position"]) == ("queued", at[2])
    seen: list[int] = []
    async with follow(mine) as stream:
        while not seen or seen[-1] > at[0]:
            status = (await stream.until("conv_status", skip=("ready", "stream_snapshot", ":"))).data
            assert (status.data.state, status.data.turn_id) == ("queued", third["turn_id"])
            seen.append(status.data.position)
            if (taken := first if seen[-1] == at[2] else second) and seen[-1] > at[0]:
                await worker.claim(taken["conversation_id"])

    assert seen == [at[2], at[1], at[0]]
    assert "position" not in (await client.get(f"{BASE}/{first['conversation_id']}")).json()
    assert "position" not in (await client.get(f"{BASE}/{first['conversation_id']}/turns/{first['turn_id']}")).json()
