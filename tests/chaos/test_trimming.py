"""F4 of the attack report: entries are removed from Redis while readers lag, and readers come back after that."""

import asyncio
import random

import pytest
from helpers.waiting import wait_until
from platform_harness.harness import Harness
from platform_harness.watcher import Watcher
from redis import Redis

from everturn.redis_drivers import open_redis_drivers

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

SEED = 20261123


async def test_readers_end_equal_to_rest_while_entries_are_removed(harness: Harness) -> None:
    sent = [await harness.clients[n % 2].send_message("new", "script:slow please") for n in range(3)]
    watchers = [
        [harness.watch(each.conversation_id), harness.watch(each.conversation_id, ingress=1, cuts=SEED + n)]
        for n, each in enumerate(sent)
    ]
    removing = asyncio.create_task(remove_entries(harness, [each.conversation_id for each in sent]))

    for each, pair in zip(sent, watchers, strict=True):
        for watcher in pair:
            await watcher.wait_ended(each.turn_id)
    removing.cancel()
    await asyncio.wait({removing})
    assert removing.cancelled(), "it failed"

    for each, pair in zip(sent, watchers, strict=True):
        await harness.check_invariants(each.conversation_id, *pair)
    await harness.close()


async def test_a_reader_that_comes_back_after_trimming_gets_a_gap_and_a_snapshot(harness: Harness) -> None:
    sent = await harness.clients[0].send_message("new", "script:slow please")
    follower = harness.watch(sent.conversation_id)
    await follower.wait_ended(sent.turn_id)
    await harness.check_invariants(sent.conversation_id, follower)
    ids = [envelope.id for envelope in follower.seen if envelope.id]
    with Redis.from_url(harness.platform.redis.url) as redis:
        await wait_until(lambda: redis.zcard("events:ended"))
        assert redis.xlen(f"events:{{{sent.conversation_id}}}")
        async with open_redis_drivers(harness.platform.redis.url, name="test") as redis_drivers:
            await redis_drivers.memory.trim_ended(after_s=0)
        assert not redis.xlen(f"events:{{{sent.conversation_id}}}")

    late = harness.watch(sent.conversation_id, after=ids[len(ids) // 2])
    newcomer = harness.watch(sent.conversation_id, ingress=1)
    for watcher in (late, newcomer):
        await watcher.wait_until(has_state)

    assert types_of(late)[:3] == ["ready", "stream.gap", "stream.snapshot"]
    assert types_of(newcomer)[:2] == ["ready", "stream.snapshot"]
    assert "stream.gap" not in types_of(follower), "who still follows loses nothing"
    following = await harness.clients[0].send_message(sent.conversation_id, "script:slow please")
    for watcher in (follower, late, newcomer):
        await watcher.wait_ended(following.turn_id)
    await harness.check_invariants(sent.conversation_id, follower, late, newcomer)
    assert "stream.gap" not in types_of(follower)
    await harness.close()


async def remove_entries(harness: Harness, conversation_ids: list[str]) -> None:
    """As a user's other streams give way, at any moment of a turn."""
    dice = random.Random(SEED)
    with Redis.from_url(harness.platform.redis.url) as redis:
        while True:
            await asyncio.to_thread(redis.xtrim, f"events:{{{dice.choice(conversation_ids)}}}", maxlen=0)
            await asyncio.sleep(dice.uniform(0.05, 0.3))


def has_state(watcher: Watcher) -> bool:
    return watcher.state is not None


def types_of(watcher: Watcher) -> list[str]:
    return [envelope.type for envelope in watcher.seen]
