"""The contract of Queue as tests; a subclass or its module defines the fixtures `harness` and `queue`."""

from collections.abc import Mapping
from dataclasses import replace

from everturn.core.identity import Lane, Principal, Role
from everturn.queue.model import MAX_AHEAD, LaneDepth, Queue, QueueDepth, QueuePosition
from everturn.turns.inbox import IdempotencyKey
from everturn_testing.turns.harness import Harness


class QueueContract:
    """Required of every Queue. The tests share rows, so each checks only what it adds."""

    async def test_turns_that_wait_are_counted_by_tenant_and_lane(self, harness: Harness, queue: Queue) -> None:
        ann, ben = Principal("depth-a", "p", "ann"), Principal("depth-b", "p", "ben")
        before = await queue.load_depth("depth-a", Lane.REGISTERED)
        for principal in (ann, ann, ben):
            await replace(harness, principal=principal).say()

        after = await queue.load_depth("depth-a", Lane.REGISTERED)

        assert after == QueueDepth(before.waiting + 3, 2)
        assert (await queue.load_depth("depth-a", Lane.PAID)).of_tenant == 0

    async def test_lanes_have_the_number_of_waiting_turns_and_the_oldest_age(
        self, harness: Harness, queue: Queue
    ) -> None:
        def count(lanes: Mapping[Lane, LaneDepth]) -> int:
            return lanes[Lane.PRIVILEGED].waiting if Lane.PRIVILEGED in lanes else 0

        own = replace(harness, principal=Principal("depth-l", "p", "lea", frozenset({Role.ADMIN})))
        before = count(await queue.load_lanes())
        receipts = [await own.say(), await own.say()]

        lanes = await queue.load_lanes()
        found = [count(lanes)]
        for receipt in receipts:
            await harness.leases.try_claim(receipt.conversation_id)
            found.append(count(await queue.load_lanes()))

        assert found == [before + 2, before + 1, before]
        assert lanes[Lane.PRIVILEGED].oldest_s >= 0

    async def test_a_turn_that_runs_waits_no_longer(self, harness: Harness, queue: Queue) -> None:
        own = replace(harness, principal=Principal("depth-c", "p", "cat"))
        receipt = await own.say()
        before = await queue.load_depth("depth-c", Lane.REGISTERED)

        await harness.leases.try_claim(receipt.conversation_id)

        after = await queue.load_depth("depth-c", Lane.REGISTERED)
        assert (before.of_tenant, after.of_tenant) == (1, 0)
        assert after.waiting == before.waiting - 1

    async def test_conversations_without_a_waiting_turn_have_no_position(self, harness: Harness, queue: Queue) -> None:
        claim = await harness.start_turn()

        assert await queue.load_positions([(harness.principal, claim.lease.conversation_id)]) == {}
        assert await queue.load_positions([]) == {}

    async def test_a_turn_moves_up_when_the_turn_ahead_is_claimed(self, harness: Harness, queue: Queue) -> None:
        one, two = await harness.say(), await harness.say()
        asked = [(harness.principal, two.conversation_id)]
        assert one.position is not None and two.position is not None
        assert two.position.ahead == one.position.ahead + 1

        await harness.leases.try_claim(one.conversation_id)

        found = (await queue.load_positions(asked))[two.conversation_id]
        assert (found.turn_id, found.position.ahead) == (two.turn_id, one.position.ahead)

    async def test_a_requeued_turn_waits_behind_the_others(self, harness: Harness, queue: Queue) -> None:
        claim = await harness.start_turn()
        other = await harness.say()
        await harness.leases.release(claim.lease, requeue=True)

        found = await queue.load_positions(
            [(harness.principal, claim.lease.conversation_id), (harness.principal, other.conversation_id)]
        )

        places = [found[one].position.ahead for one in (other.conversation_id, claim.lease.conversation_id)]
        assert places == [places[0], places[0] + 1]

    async def test_a_replayed_receipt_has_the_first_position(self, harness: Harness) -> None:
        key = IdempotencyKey("messages", "place", "hash")
        first = await harness.say(key=key)
        await harness.leases.try_claim(first.conversation_id)

        again = await harness.say(key=key)

        assert again.replayed and again.position == first.position is not None

    async def test_a_reported_position_has_a_maximum(self, harness: Harness, queue: Queue) -> None:
        flood = replace(harness, principal=Principal("place-flood", "p", "f", frozenset({Role.ADMIN})))

        positions = [(await flood.say()).position for _ in range(MAX_AHEAD + 2)]

        assert positions[-3:] == [
            QueuePosition(MAX_AHEAD - 1),
            QueuePosition(MAX_AHEAD),
            QueuePosition(MAX_AHEAD, more=True),
        ]
