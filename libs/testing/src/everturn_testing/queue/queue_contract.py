"""The contract of Queue as tests; a subclass or its module defines the fixtures `stage` and `queue`."""

from collections.abc import Mapping
from dataclasses import replace

from everturn.core.identity import Lane, Principal, Role
from everturn.queue.ports import MAX_AHEAD, LaneDepth, Queue, QueueDepth, QueuePosition
from everturn.turns.inbox import IdempotencyKey
from everturn_testing.turns.stage import Stage


class QueueContract:
    """Required of every Queue. The tests share rows, so each checks only what it adds."""

    async def test_turns_that_wait_are_counted_by_tenant_and_lane(self, stage: Stage, queue: Queue) -> None:
        ann, ben = Principal("depth-a", "p", "ann"), Principal("depth-b", "p", "ben")
        before = await queue.load_depth("depth-a", Lane.REGISTERED)
        for principal in (ann, ann, ben):
            await replace(stage, principal=principal).say()

        after = await queue.load_depth("depth-a", Lane.REGISTERED)

        assert after == QueueDepth(before.waiting + 3, 2)
        assert (await queue.load_depth("depth-a", Lane.PAID)).of_tenant == 0

    async def test_lanes_have_the_number_of_waiting_turns_and_the_oldest_age(self, stage: Stage, queue: Queue) -> None:
        def count(lanes: Mapping[Lane, LaneDepth]) -> int:
            return lanes[Lane.PRIVILEGED].waiting if Lane.PRIVILEGED in lanes else 0

        own = replace(stage, principal=Principal("depth-l", "p", "lea", frozenset({Role.ADMIN})))
        before = count(await queue.load_lanes())
        receipts = [await own.say(), await own.say()]

        lanes = await queue.load_lanes()
        found = [count(lanes)]
        for receipt in receipts:
            await stage.leases.try_claim(receipt.conversation_id)
            found.append(count(await queue.load_lanes()))

        assert found == [before + 2, before + 1, before]
        assert lanes[Lane.PRIVILEGED].oldest_s >= 0

    async def test_a_turn_that_runs_waits_no_longer(self, stage: Stage, queue: Queue) -> None:
        own = replace(stage, principal=Principal("depth-c", "p", "cat"))
        receipt = await own.say()
        before = await queue.load_depth("depth-c", Lane.REGISTERED)

        await stage.leases.try_claim(receipt.conversation_id)

        after = await queue.load_depth("depth-c", Lane.REGISTERED)
        assert (before.of_tenant, after.of_tenant) == (1, 0)
        assert after.waiting == before.waiting - 1

    async def test_conversations_without_a_waiting_turn_have_no_position(self, stage: Stage, queue: Queue) -> None:
        claim = await stage.start_turn()

        assert await queue.load_positions([(stage.principal, claim.lease.conversation_id)]) == {}
        assert await queue.load_positions([]) == {}

    async def test_a_turn_moves_up_when_the_turn_ahead_is_claimed(self, stage: Stage, queue: Queue) -> None:
        one, two = await stage.say(), await stage.say()
        asked = [(stage.principal, two.conversation_id)]
        assert one.position is not None and two.position is not None
        assert two.position.ahead == one.position.ahead + 1

        await stage.leases.try_claim(one.conversation_id)

        found = (await queue.load_positions(asked))[two.conversation_id]
        assert (found.turn_id, found.position.ahead) == (two.turn_id, one.position.ahead)

    async def test_a_requeued_turn_waits_behind_the_others(self, stage: Stage, queue: Queue) -> None:
        claim = await stage.start_turn()
        other = await stage.say()
        await stage.leases.release(claim.lease, requeue=True)

        found = await queue.load_positions(
            [(stage.principal, claim.lease.conversation_id), (stage.principal, other.conversation_id)]
        )

        places = [found[one].position.ahead for one in (other.conversation_id, claim.lease.conversation_id)]
        assert places == [places[0], places[0] + 1]

    async def test_a_replayed_receipt_has_the_first_position(self, stage: Stage) -> None:
        key = IdempotencyKey("messages", "place", "hash")
        first = await stage.say(key=key)
        await stage.leases.try_claim(first.conversation_id)

        again = await stage.say(key=key)

        assert again.replayed and again.position == first.position is not None

    async def test_a_reported_position_has_a_maximum(self, stage: Stage, queue: Queue) -> None:
        flood = replace(stage, principal=Principal("place-flood", "p", "f", frozenset({Role.ADMIN})))

        positions = [(await flood.say()).position for _ in range(MAX_AHEAD + 2)]

        assert positions[-3:] == [
            QueuePosition(MAX_AHEAD - 1),
            QueuePosition(MAX_AHEAD),
            QueuePosition(MAX_AHEAD, more=True),
        ]
