"""The contract of Leases as tests; a subclass or its module defines the fixture `harness`."""

from dataclasses import replace

import pytest

from everturn.core.errors import StaleFence
from everturn.events.cursor import EventCursor
from everturn.timeline.turns import TurnStatus
from everturn_testing.turns.harness import Harness, closing, commit, think, turn_of


class LeasesContract:
    """Required of every Leases."""

    async def test_a_claim_starts_the_queued_turn(self, harness: Harness) -> None:
        receipt = await harness.say()

        claim = await harness.claim(receipt.conversation_id)

        turn = await harness.timelines.load_turn(harness.principal, turn_of(receipt))
        assert (turn.status, turn.attempt) == (TurnStatus.RUNNING, 0)
        assert turn.started_at is not None
        assert (claim.turn_id, claim.lease.fence, claim.next_seq, claim.inbox_seq) == (receipt.turn_id, 1, 1, 1)
        assert claim.lease.principal == harness.principal

    async def test_a_held_lease_can_not_be_claimed(self, harness: Harness) -> None:
        claim = await harness.start_turn()

        assert await harness.rival.try_claim(claim.lease.conversation_id) is None
        assert await harness.leases.try_claim(claim.lease.conversation_id) is None

    async def test_a_conversation_without_an_open_turn_can_not_be_claimed(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        assert claim.turn_id is not None
        await harness.leases.mark_announced(claim.lease, claim.turn_id, claim.cursor)
        await harness.leases.release(claim.lease, requeue=False)

        assert await harness.rival.try_claim(conversation_id) is None
        assert await harness.rival.try_claim(harness.ids.conversation()) is None

    async def test_an_expired_lease_is_taken_over_with_the_next_fence(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        await harness.expire_lease(claim.lease.conversation_id)

        taken = await harness.rival.try_claim(claim.lease.conversation_id)

        assert taken is not None
        assert (taken.lease.fence, taken.turn_id, taken.attempt) == (2, claim.turn_id, 1)

    async def test_a_commit_forgets_earlier_takeovers(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        await harness.expire_lease(conversation_id)
        second = await harness.claim(conversation_id)
        await harness.timelines.commit(second.lease, commit(second, think(second, "a")))
        await harness.expire_lease(conversation_id)

        third = await harness.claim(conversation_id)

        assert (second.attempt, third.attempt) == (1, 1)

    async def test_takeovers_without_a_commit_add_up(self, harness: Harness) -> None:
        claim = await harness.start_turn()

        for attempt in (1, 2, 3):
            await harness.expire_lease(claim.lease.conversation_id)
            assert (await harness.claim(claim.lease.conversation_id)).attempt == attempt

    async def test_a_release_returns_whether_work_is_left(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        assert claim.turn_id is not None
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        await harness.leases.mark_announced(claim.lease, claim.turn_id, claim.cursor)

        assert not await harness.leases.release(claim.lease, requeue=False)
        await harness.say("Next.", conversation_id)
        # A release whose answer was lost is repeated.
        assert await harness.leases.release(claim.lease, requeue=False)
        claim = await harness.claim(conversation_id)
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        assert await harness.leases.release(claim.lease, requeue=False), "the end is not announced"

    async def test_a_release_can_save_that_the_end_was_announced(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        assert claim.turn_id is not None
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        announced = claim.turn_id, EventCursor(claim.lease.fence, 99)

        assert not await harness.leases.release_announced(claim.lease, *announced)
        await harness.say("Next.", conversation_id)
        # A release whose answer was lost is repeated.
        assert await harness.leases.release_announced(claim.lease, *announced)
        following = await harness.claim(conversation_id)
        assert not await harness.leases.release_announced(claim.lease, *announced)

        assert following.unannounced == ()
        assert following.cursor == announced[1]
        assert await harness.rival.try_claim(conversation_id) is None, "the next lease is still held"

    async def test_an_end_is_not_saved_as_announced_under_a_stale_fence(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        assert claim.turn_id is not None
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        await harness.expire_lease(claim.lease.conversation_id)
        taken = await harness.claim(claim.lease.conversation_id)

        with pytest.raises(StaleFence):
            await harness.leases.release_announced(claim.lease, claim.turn_id, EventCursor(claim.lease.fence, 99))

        assert taken.unannounced == (claim.turn_id,)
        assert await harness.rival.try_claim(claim.lease.conversation_id) is None, "the new lease is held"

    async def test_requeueing_does_not_count_as_an_attempt(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        assert claim.turn_id is not None

        assert await harness.leases.release(claim.lease, requeue=True)

        assert (await harness.timelines.load_turn(harness.principal, claim.turn_id)).status is TurnStatus.QUEUED
        taken = await harness.rival.try_claim(claim.lease.conversation_id)
        assert taken is not None
        assert (taken.lease.fence, taken.attempt) == (2, 0)

    async def test_a_turn_counts_the_time_of_its_leases_only(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        assert claim.turn_id is not None

        await harness.age_lease(conversation_id, 10, 0)
        await harness.leases.release(claim.lease, requeue=True)
        handed_over = await harness.timelines.load_turn(harness.principal, claim.turn_id)
        await harness.claim(conversation_id)
        await harness.age_lease(conversation_id, 20, 3_600)
        claimed = await harness.timelines.load_turn(harness.principal, claim.turn_id)
        assert await harness.rival.try_claim(conversation_id) is not None
        taken_over = await harness.timelines.load_turn(harness.principal, claim.turn_id)

        assert handed_over.leased_s == pytest.approx(10, abs=2)
        assert claimed.leased_s == handed_over.leased_s
        assert taken_over.leased_s == pytest.approx(30, abs=2)

    async def test_the_next_turn_begins_with_no_leased_time(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        await harness.age_lease(claim.lease.conversation_id, 10, 0)
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        next_turn = turn_of(await harness.say("Next.", claim.lease.conversation_id))

        await harness.leases.release(claim.lease, requeue=False)

        assert (await harness.timelines.load_turn(harness.principal, next_turn)).leased_s == 0

    async def test_a_renewal_returns_what_is_held_with_its_inbox(self, harness: Harness) -> None:
        one, two = await harness.start_turn(), await harness.start_turn()
        await harness.say("More.", two.lease.conversation_id)
        await harness.expire_lease(one.lease.conversation_id)
        await harness.rival.try_claim(one.lease.conversation_id)

        held = {claim.lease.conversation_id: claim.lease.fence for claim in (one, two)}
        renewed = await harness.leases.renew({**held, harness.ids.conversation(): 1})

        assert renewed == {two.lease.conversation_id: 2}

    async def test_an_expired_unclaimed_lease_can_be_renewed(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        conversation_id = claim.lease.conversation_id
        await harness.expire_lease(conversation_id)

        assert await harness.leases.renew({conversation_id: claim.lease.fence}) == {conversation_id: claim.inbox_seq}

        assert await harness.rival.try_claim(conversation_id) is None

    async def test_a_lost_lease_can_not_be_released(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        await harness.expire_lease(claim.lease.conversation_id)
        taken = await harness.rival.try_claim(claim.lease.conversation_id)

        assert not await harness.leases.release(claim.lease, requeue=True)

        assert taken is not None
        assert await harness.rival.renew({taken.lease.conversation_id: taken.lease.fence})

    async def test_an_unannounced_ended_turn_can_be_claimed(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        await harness.leases.release(claim.lease, requeue=False)

        taken = await harness.rival.try_claim(claim.lease.conversation_id)

        assert taken is not None
        assert (taken.turn_id, taken.unannounced) == (None, (claim.turn_id,))

    async def test_a_claim_has_the_position_of_the_timeline(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        blocks = think(claim, "a", "b")
        done = commit(claim, blocks)
        await harness.timelines.commit(claim.lease, done)
        await harness.expire_lease(claim.lease.conversation_id)

        taken = await harness.claim(claim.lease.conversation_id)

        assert (taken.next_seq, taken.last_hash, taken.cursor) == (3, blocks[-1].hash, done.cursor)

    async def test_the_next_claim_continues_after_the_announced_id(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        assert claim.turn_id is not None
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))

        await harness.leases.mark_announced(claim.lease, claim.turn_id, EventCursor(claim.lease.fence, 99))
        await harness.leases.release(claim.lease, requeue=False)
        await harness.say("Next.", claim.lease.conversation_id)

        assert (await harness.claim(claim.lease.conversation_id)).cursor == EventCursor(claim.lease.fence, 99)

    async def test_announcement_attempts_are_saved_under_the_fence(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        assert claim.turn_id is not None
        lease, turn_id = claim.lease, claim.turn_id
        with pytest.raises(StaleFence):
            await harness.leases.save_announce_attempts(lease, turn_id, 1)
        await harness.timelines.commit(lease, closing(claim, seen_inbox=claim.inbox_seq))

        noted = [await harness.leases.load_announce_attempts(lease, turn_id)]
        for tries in (2, 2, 0):
            await harness.leases.save_announce_attempts(lease, turn_id, tries)
            noted.append(await harness.leases.load_announce_attempts(lease, turn_id))

        assert noted == [0, 2, 2, 0]
        zombie = replace(lease, fence=lease.fence - 1)
        with pytest.raises(StaleFence):
            await harness.leases.load_announce_attempts(zombie, turn_id)
        with pytest.raises(StaleFence):
            await harness.leases.save_announce_attempts(zombie, turn_id, 1)
