"""The contract of Leases as tests; a subclass or its module defines the fixture `stage`."""

import pytest

from everturn.events.cursor import EventCursor
from everturn.timeline.turns import TurnStatus
from everturn_testing.turns.stage import Stage, closing, commit, think, turn_of


class LeasesContract:
    """Required of every Leases."""

    async def test_a_claim_starts_the_queued_turn(self, stage: Stage) -> None:
        receipt = await stage.say()

        claim = await stage.claim(receipt.conversation_id)

        turn = await stage.timelines.load_turn(stage.principal, turn_of(receipt))
        assert (turn.status, turn.attempt) == (TurnStatus.RUNNING, 0)
        assert turn.started_at is not None
        assert (claim.turn_id, claim.lease.fence, claim.next_seq, claim.inbox_seq) == (receipt.turn_id, 1, 1, 1)
        assert claim.lease.principal == stage.principal

    async def test_a_held_lease_can_not_be_claimed(self, stage: Stage) -> None:
        claim = await stage.start_turn()

        assert await stage.rival.try_claim(claim.lease.conversation_id) is None
        assert await stage.leases.try_claim(claim.lease.conversation_id) is None

    async def test_a_conversation_without_an_open_turn_can_not_be_claimed(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        await stage.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        assert claim.turn_id is not None
        await stage.timelines.save_announced(claim.lease, claim.turn_id, claim.cursor)
        await stage.leases.release(claim.lease, requeue=False)

        assert await stage.rival.try_claim(conversation_id) is None
        assert await stage.rival.try_claim(stage.ids.conversation()) is None

    async def test_an_expired_lease_is_taken_over_with_the_next_fence(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        await stage.expire_lease(claim.lease.conversation_id)

        taken = await stage.rival.try_claim(claim.lease.conversation_id)

        assert taken is not None
        assert (taken.lease.fence, taken.turn_id, taken.attempt) == (2, claim.turn_id, 1)

    async def test_a_commit_forgets_earlier_takeovers(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        await stage.expire_lease(conversation_id)
        second = await stage.claim(conversation_id)
        await stage.timelines.commit(second.lease, commit(second, think(second, "a")))
        await stage.expire_lease(conversation_id)

        third = await stage.claim(conversation_id)

        assert (second.attempt, third.attempt) == (1, 1)

    async def test_takeovers_without_a_commit_add_up(self, stage: Stage) -> None:
        claim = await stage.start_turn()

        for attempt in (1, 2, 3):
            await stage.expire_lease(claim.lease.conversation_id)
            assert (await stage.claim(claim.lease.conversation_id)).attempt == attempt

    async def test_requeueing_does_not_count_as_an_attempt(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        assert claim.turn_id is not None

        assert await stage.leases.release(claim.lease, requeue=True)

        assert (await stage.timelines.load_turn(stage.principal, claim.turn_id)).status is TurnStatus.QUEUED
        taken = await stage.rival.try_claim(claim.lease.conversation_id)
        assert taken is not None
        assert (taken.lease.fence, taken.attempt) == (2, 0)

    async def test_a_turn_counts_the_time_of_its_leases_only(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        assert claim.turn_id is not None

        await stage.age_lease(conversation_id, 10, 0)
        await stage.leases.release(claim.lease, requeue=True)
        handed_over = await stage.timelines.load_turn(stage.principal, claim.turn_id)
        await stage.claim(conversation_id)
        await stage.age_lease(conversation_id, 20, 3_600)
        claimed = await stage.timelines.load_turn(stage.principal, claim.turn_id)
        assert await stage.rival.try_claim(conversation_id) is not None
        taken_over = await stage.timelines.load_turn(stage.principal, claim.turn_id)

        assert handed_over.leased_s == pytest.approx(10, abs=2)
        assert claimed.leased_s == handed_over.leased_s
        assert taken_over.leased_s == pytest.approx(30, abs=2)

    async def test_the_next_turn_begins_with_no_leased_time(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        await stage.age_lease(claim.lease.conversation_id, 10, 0)
        await stage.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        next_turn = turn_of(await stage.say("Next.", claim.lease.conversation_id))

        await stage.leases.release(claim.lease, requeue=False)

        assert (await stage.timelines.load_turn(stage.principal, next_turn)).leased_s == 0

    async def test_a_renewal_returns_what_is_held_with_its_inbox(self, stage: Stage) -> None:
        one, two = await stage.start_turn(), await stage.start_turn()
        await stage.say("More.", two.lease.conversation_id)
        await stage.expire_lease(one.lease.conversation_id)
        await stage.rival.try_claim(one.lease.conversation_id)

        held = {claim.lease.conversation_id: claim.lease.fence for claim in (one, two)}
        renewed = await stage.leases.renew({**held, stage.ids.conversation(): 1})

        assert renewed == {two.lease.conversation_id: 2}

    async def test_an_expired_unclaimed_lease_can_be_renewed(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        conversation_id = claim.lease.conversation_id
        await stage.expire_lease(conversation_id)

        assert await stage.leases.renew({conversation_id: claim.lease.fence}) == {conversation_id: claim.inbox_seq}

        assert await stage.rival.try_claim(conversation_id) is None

    async def test_a_lost_lease_cannot_be_released(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        await stage.expire_lease(claim.lease.conversation_id)
        taken = await stage.rival.try_claim(claim.lease.conversation_id)

        assert not await stage.leases.release(claim.lease, requeue=True)

        assert taken is not None
        assert await stage.rival.renew({taken.lease.conversation_id: taken.lease.fence})

    async def test_an_unannounced_ended_turn_can_be_claimed(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        await stage.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        await stage.leases.release(claim.lease, requeue=False)

        taken = await stage.rival.try_claim(claim.lease.conversation_id)

        assert taken is not None
        assert (taken.turn_id, taken.unannounced) == (None, (claim.turn_id,))

    async def test_a_claim_has_the_position_of_the_timeline(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        blocks = think(claim, "a", "b")
        done = commit(claim, blocks)
        await stage.timelines.commit(claim.lease, done)
        await stage.expire_lease(claim.lease.conversation_id)

        taken = await stage.claim(claim.lease.conversation_id)

        assert (taken.next_seq, taken.last_hash, taken.cursor) == (3, blocks[-1].hash, done.cursor)

    async def test_the_next_claim_continues_after_the_announced_id(self, stage: Stage) -> None:
        claim = await stage.start_turn()
        assert claim.turn_id is not None
        await stage.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))

        await stage.timelines.save_announced(claim.lease, claim.turn_id, EventCursor(claim.lease.fence, 99))
        await stage.leases.release(claim.lease, requeue=False)
        await stage.say("Next.", claim.lease.conversation_id)

        assert (await stage.claim(claim.lease.conversation_id)).cursor == EventCursor(claim.lease.fence, 99)
