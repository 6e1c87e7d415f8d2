"""F1 and F2 between the storing of an object and the commit of its row: workers delete objects that no row will name,
and no row names a deleted object. Each test ends with the history checker, which detects both."""

import asyncio
import json
import signal
import uuid

import httpx2
import pytest
from helpers.forks import INGRESS_BOUNDS, WORKER_BOUNDS
from helpers.waiting import wait_until
from platform_harness.cleanup import find_keys
from platform_harness.harness import Harness
from platform_harness.watcher import Watcher

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

EXTRA_ENV = {WORKER_BOUNDS: '{"lease_s": 4, "orphans_after_s": 4}', "WORKER_SLOTS": "1"}
"""One turn at a time: each of two workers has one that dies with it. The lease is that of `test_failpoints.py`."""
WORKERS = ("worker-1", "worker-2")
FILE = b"region,revenue\nNorth,240.50\n"
LIMIT_S = 60.0


async def send_file(harness: Harness, conversation_id: str, key: str) -> httpx2.Response:
    """Through the first ingress."""
    url = f"{harness.clients[0].base_url}/conversations/default/default/{conversation_id}/messages"
    parts = [
        ("message", (None, json.dumps({"text": "script:plain please"}).encode(), "application/json")),
        ("files", ("sales.csv", FILE, "text/csv")),
    ]
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S) as http:
        return await http.post(url, files=parts, headers={"Idempotency-Key": key})


async def begin(harness: Harness) -> Watcher:
    """An idle conversation, watched through the second ingress."""
    sent = await harness.clients[1].send_message("new", "script:plain please")
    watcher = harness.watch(sent.conversation_id, ingress=1)
    await watcher.wait_ended(sent.turn_id)
    await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    return watcher


def find_files(harness: Harness, conversation_id: str) -> set[str]:
    """Without the manifests of rounds."""
    return {key for key in find_keys(harness.platform, conversation_id) if "/manifests/" not in key}


async def check_taken(harness: Harness, watcher: Watcher, answer: httpx2.Response) -> None:
    """The file is in the conversation, and of all that was stored for it only that one object is left."""
    assert answer.status_code == 202, answer.text
    turn = await watcher.wait_ended(answer.json()["turn_id"])
    await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    assert (turn.status, [file.filename for file in turn.attachments]) == ("completed", ["sales.csv"])
    state = await harness.check_invariants(watcher.conversation_id, watcher)
    assert len(state.turns) == 2
    assert len(find_files(harness, watcher.conversation_id)) == 1


@pytest.mark.slow
async def test_objects_of_uncommitted_writes_are_deleted(harness: Harness) -> None:
    watcher, platform, key = await begin(harness), harness.platform, str(uuid.uuid4())
    platform.auto_restart = False
    killed = {"ingress-1": "message.saved", "worker-1": "turn.before_c2", "worker-2": "turn.before_c2"}
    await asyncio.gather(
        *(platform.restart(part, extra_env={"FAILPOINT": f"{place}:1:kill"}) for part, place in killed.items())
    )

    sent = [await harness.clients[1].send_message("new", "script:draw please") for _ in WORKERS]
    drawing = [harness.watch(each.conversation_id, ingress=1) for each in sent]
    for worker in WORKERS:
        assert await platform.wait_exit(worker) == -signal.SIGKILL
    # From here on nobody deletes anything.
    with pytest.raises(httpx2.TransportError):
        await send_file(harness, watcher.conversation_id, key)
    assert await platform.wait_exit("ingress-1") == -signal.SIGKILL
    orphans = [find_files(harness, each.conversation_id) for each in (watcher, *drawing)]
    await asyncio.gather(*map(platform.restart, killed))

    # On a busy machine the second worker may have died in the turn of the first.
    assert (len(orphans[0]), sum(map(len, orphans[1:]))) == (1, 2)
    for each, drawn, orphan in zip(sent, drawing, orphans[1:], strict=True):
        turn = await drawn.wait_ended(each.turn_id)
        assert (turn.status, [file.filename for file in turn.files]) == ("completed", ["lot.txt"])
        await harness.check_invariants(each.conversation_id, drawn)
        # Who came after it ran the program again, which wrote something else.
        assert len(find_files(harness, each.conversation_id) - orphan) == 1
    await check_taken(harness, watcher, await send_file(harness, watcher.conversation_id, key))
    assert not orphans[0] & find_files(harness, watcher.conversation_id)
    await harness.close()


async def test_a_frozen_ingress_names_no_deleted_object(harness: Harness) -> None:
    watcher, platform, key = await begin(harness), harness.platform, str(uuid.uuid4())
    await platform.restart(
        "ingress-1",
        extra_env={
            "FAILPOINT": "message.saved:1:stop",
            INGRESS_BOUNDS: '{"upload_s": 2, "heartbeat_s": 1, "streams_of_user": 2000}',
        },
    )

    sending = asyncio.create_task(send_file(harness, watcher.conversation_id, key))
    await wait_until(lambda: find_files(harness, watcher.conversation_id))
    await wait_until(lambda: not find_files(harness, watcher.conversation_id))
    platform.kill("ingress-1", signal.SIGCONT)
    late = await sending

    assert late.status_code == 503
    assert int(late.headers["retry-after"]) >= 1
    await platform.restart("ingress-1")
    await check_taken(harness, watcher, await send_file(harness, watcher.conversation_id, key))
    await harness.close()
