"""The contract of Timelines as tests; a subclass or its module defines the fixture `harness`."""

from dataclasses import replace

import pytest

from everturn.core.errors import NotFound, OutOfOrder, StaleFence
from everturn.feedback.model import Feedback, Reaction
from everturn.timeline.blocks import FeedbackBody, SignalBody
from everturn.timeline.turns import Outcome, SignalState, TurnStatus
from everturn.turns.inbox import Receipt
from everturn.turns.model import Claim, Commit, Effect, EffectChange, EffectState, Promotion, SignalChange, UsageEvent
from everturn.turns.ports import InboxMoved
from everturn_testing.core import BEGINNING
from everturn_testing.timeline import first_broken_link
from everturn_testing.turns.harness import STRANGERS, Harness, closing, commit, summarize, think, turn_of, write


class TimelinesContract:
    """Required of every Timelines."""

    async def test_blocks_come_back_as_they_were_written(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        blocks = think(claim, "first", "\x00 \x1f \u2028 é \U0001f600", "third")

        assert await harness.timelines.commit(claim.lease, commit(claim, blocks)) == claim.inbox_seq

        conversation_id = claim.lease.conversation_id
        assert await harness.timelines.load_recent_blocks(harness.principal, conversation_id) == blocks
        assert first_broken_link(await harness.timelines.load_recent_blocks(harness.principal, conversation_id)) is None

    async def test_a_stale_fence_writes_nothing(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        await harness.expire_lease(claim.lease.conversation_id)
        await harness.rival.try_claim(claim.lease.conversation_id)

        with pytest.raises(StaleFence):
            await harness.timelines.commit(claim.lease, commit(claim, think(claim, "zombie")))
        with pytest.raises(StaleFence):
            await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        assert claim.turn_id is not None
        with pytest.raises(StaleFence):
            await harness.leases.mark_announced(claim.lease, claim.turn_id, claim.cursor)

        assert await harness.timelines.load_recent_blocks(harness.principal, claim.lease.conversation_id) == ()

    async def test_blocks_that_do_not_follow_are_refused(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        blocks = think(claim, "a")
        await harness.timelines.commit(claim.lease, commit(claim, blocks))

        for forged in (replace(claim, next_seq=3, last_hash=blocks[-1].hash), replace(claim, next_seq=2)):
            with pytest.raises(OutOfOrder):
                await harness.timelines.commit(claim.lease, commit(claim, think(forged, "b")))

        assert await harness.timelines.load_recent_blocks(harness.principal, claim.lease.conversation_id) == blocks

    async def test_a_commit_can_be_repeated_after_a_lost_reply(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        ending = closing(claim, seen_inbox=claim.inbox_seq)

        first = await harness.timelines.commit(claim.lease, ending)
        again = await harness.timelines.commit(claim.lease, ending)

        assert first == again
        assert len(await harness.timelines.load_recent_blocks(harness.principal, claim.lease.conversation_id)) == 1

    async def test_a_close_ends_the_turn(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        assert claim.turn_id is not None

        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))

        turn = await harness.timelines.load_turn(harness.principal, claim.turn_id)
        assert (turn.status, turn.outcome, turn.error) == (TurnStatus.COMPLETED, Outcome.COMPLETED, None)
        assert turn.ended_at is not None and turn.usage is not None

    async def test_a_close_that_missed_a_message_writes_nothing(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        await harness.say("Wait!", claim.lease.conversation_id)

        with pytest.raises(InboxMoved) as moved:
            await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))

        assert moved.value.inbox_seq == claim.inbox_seq + 1
        assert await harness.timelines.load_recent_blocks(harness.principal, claim.lease.conversation_id) == ()

    async def test_a_late_followup_becomes_the_next_turn(self, harness: Harness) -> None:
        claim = await harness.claim((await harness.say(time_zone="Asia/Tokyo")).conversation_id)
        followup = await harness.say("One more.", claim.lease.conversation_id, uploads=(harness.upload(),))
        assert followup.signal_id is not None and claim.turn_id is not None
        promotion = Promotion((followup.signal_id,), harness.ids.turn(), "One more.")

        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq + 1, promote=promotion))

        turn = await harness.timelines.load_turn(harness.principal, promotion.turn_id)
        assert (turn.ordinal, turn.status, turn.request.text) == (2, TurnStatus.QUEUED, "One more.")
        assert turn.request.time_zone == "Asia/Tokyo"
        assert [artifact.filename for artifact in turn.request.attachments] == ["sales.csv"]
        signal = await harness.inbox.load_signal(harness.principal, turn.conversation_id, followup.signal_id)
        assert (signal.state, signal.promoted_to) == (SignalState.PROMOTED, promotion.turn_id)
        await harness.leases.mark_announced(claim.lease, claim.turn_id, claim.cursor)
        await harness.leases.release(claim.lease, requeue=False)
        assert (await harness.claim(turn.conversation_id)).turn_id == promotion.turn_id

    async def test_a_promoted_turn_keeps_the_trace_of_the_one_that_ended(self, harness: Harness) -> None:
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        claim = await harness.claim((await harness.say(trace=trace)).conversation_id)
        followup = await harness.say("One more.", claim.lease.conversation_id)
        assert followup.signal_id is not None
        promotion = Promotion((followup.signal_id,), harness.ids.turn(), "One more.")

        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq + 1, promote=promotion))

        promoted = await harness.timelines.load_turn(harness.principal, promotion.turn_id)
        assert promoted.request.trace == trace

    async def test_an_applied_signal_is_no_longer_open(self, harness: Harness) -> None:
        claim, receipt = await _with_followup(harness)
        assert receipt.signal_id is not None

        await harness.timelines.commit(claim.lease, _folding(claim, receipt, "More."))

        (signal,) = await harness.timelines.load_signals(harness.principal, turn_of(receipt))
        assert (signal.state, signal.round) == (SignalState.APPLIED, 1)
        assert signal == await harness.inbox.load_signal(harness.principal, receipt.conversation_id, receipt.signal_id)

    async def test_a_signal_that_was_edited_meanwhile_is_not_applied(self, harness: Harness) -> None:
        claim, receipt = await _with_followup(harness)
        assert receipt.signal_id is not None
        await harness.inbox.save_signal_text(harness.principal, receipt.conversation_id, receipt.signal_id, "Less.")

        with pytest.raises(InboxMoved):
            await harness.timelines.commit(claim.lease, _folding(claim, receipt, "More."))

        assert await harness.timelines.load_recent_blocks(harness.principal, receipt.conversation_id) == ()

    async def test_a_signal_retracted_meanwhile_is_not_applied(self, harness: Harness) -> None:
        claim, receipt = await _with_followup(harness)
        assert receipt.signal_id is not None
        await harness.inbox.retract_signal(harness.principal, receipt.conversation_id, receipt.signal_id)

        with pytest.raises(InboxMoved):
            await harness.timelines.commit(claim.lease, _folding(claim, receipt, "More."))

    async def test_feedback_is_fresh_until_a_block_contains_it(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        assert claim.turn_id is not None
        conversation_id = claim.lease.conversation_id
        given = Feedback(claim.turn_id, "user", Reaction.NOT_OK, "Too long.", BEGINNING)
        await harness.give_feedback(harness.principal, conversation_id, given)
        where = harness.principal, conversation_id, claim.turn_id
        assert (await harness.timelines.load_start(*where)).feedback == (given,)

        body = FeedbackBody(turn_id=claim.turn_id, origin="user", reaction="not_ok", text="Too long.")
        await harness.timelines.commit(claim.lease, commit(claim, write(claim, body)))

        assert (await harness.timelines.load_start(*where)).feedback == ()

    async def test_feedback_of_a_machine_is_added_once_with_its_blocks(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        assert claim.turn_id is not None
        given = Feedback(claim.turn_id, "machine", Reaction.OK, "Checked.", BEGINNING, 0.9)
        judged = replace(commit(claim, think(claim, "checked")), feedback=(given, given))
        await harness.timelines.commit(claim.lease, judged)
        await harness.timelines.commit(claim.lease, judged)
        await harness.expire_lease(claim.lease.conversation_id)
        await harness.rival.try_claim(claim.lease.conversation_id)

        with pytest.raises(StaleFence):
            await harness.timelines.commit(claim.lease, judged)

        where = harness.principal, claim.lease.conversation_id, claim.turn_id
        assert (await harness.timelines.load_start(*where)).feedback == (given, given)

    async def test_usage_adds_up_and_effects_may_change(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        assert claim.turn_id is not None
        event = UsageEvent("m", "decision", 10, 5, 3, 0, 0.25, False)
        effect = EffectChange(harness.ids.call(), "io.mail", "h", Effect.IRREVERSIBLE, EffectState.INTENDED)
        first, then = think(claim, "a"), think(claim, "b", after=think(claim, "a"))

        await harness.timelines.commit(
            claim.lease, replace(commit(claim, first), usage=(event, event), effects=(effect,))
        )
        committed = replace(effect, state=EffectState.COMMITTED)
        await harness.timelines.commit(claim.lease, replace(commit(claim, then), usage=(event,), effects=(committed,)))

        start = await harness.timelines.load_start(harness.principal, claim.lease.conversation_id, claim.turn_id)
        usage = start.usage
        assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cost_usd) == (30, 15, 9, 0.75)

    async def test_the_end_of_a_turn_titles_a_conversation_that_has_no_title(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        before = await harness.timelines.load_title(harness.principal, claim.lease.conversation_id)

        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))

        assert before == ""
        assert await harness.timelines.load_title(harness.principal, claim.lease.conversation_id) == "Greetings"

    async def test_the_lease_holder_sets_a_title_once(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        where = harness.principal, claim.lease.conversation_id

        first = await harness.timelines.save_title(claim.lease, "Greetings")
        same = await harness.timelines.save_title(claim.lease, "Greetings")
        other = await harness.timelines.save_title(claim.lease, "Another")

        assert (first, same, other) == (True, True, False)
        assert await harness.timelines.load_title(*where) == "Greetings"
        with pytest.raises(StaleFence):
            await harness.timelines.save_title(replace(claim.lease, fence=claim.lease.fence - 1), "Late")

    async def test_the_end_of_a_turn_leaves_a_title_as_it_is(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        done = closing(claim, seen_inbox=claim.inbox_seq)
        assert done.close is not None
        await harness.timelines.commit(claim.lease, done)
        await harness.leases.release(claim.lease, requeue=False)
        await harness.say("Again.", claim.lease.conversation_id)
        again = await harness.claim(claim.lease.conversation_id)
        late = closing(again, seen_inbox=again.inbox_seq)
        assert late.close is not None

        await harness.timelines.commit(again.lease, replace(late, close=replace(late.close, title="Another")))

        assert await harness.timelines.load_title(harness.principal, claim.lease.conversation_id) == "Greetings"

    async def test_nobody_else_sees_anything(self, harness: Harness) -> None:
        claim, _ = await _with_followup(harness)
        assert claim.turn_id is not None
        await harness.timelines.commit(claim.lease, commit(claim, think(claim, "secret")))

        for stranger in STRANGERS:
            assert await harness.timelines.load_recent_blocks(stranger, claim.lease.conversation_id) == ()
            assert await harness.timelines.load_recent_blocks(stranger, claim.lease.conversation_id) == ()
            assert await harness.timelines.load_signals(stranger, claim.turn_id) == ()
            with pytest.raises(NotFound):
                await harness.timelines.load_turn(stranger, claim.turn_id)
            with pytest.raises(NotFound):
                await harness.timelines.load_start(stranger, claim.lease.conversation_id, claim.turn_id)
            with pytest.raises(NotFound):
                await harness.timelines.load_title(stranger, claim.lease.conversation_id)


class RecentBlocksContract:
    """Required of every Timelines for a conversation whose older turns are summarized."""

    async def test_a_conversation_is_loaded_from_its_last_summary_on(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        blocks = think(claim, "1", "2", "3", "4")
        forged = r'\"last_seq\":1,\"scope\":\"history\" "last_seq":1 "scope":"history" ' + "\x00"
        summaries = [
            summarize("history", last_seq=1, text=forged),
            summarize("history", last_seq=3, text=forged),
            summarize("turn", last_seq=4, text=forged),
        ]
        blocks += write(claim, *summaries, after=blocks)
        blocks += think(claim, "8", after=blocks)
        await harness.timelines.commit(claim.lease, commit(claim, blocks))

        recent = await harness.timelines.load_recent_blocks(harness.principal, claim.lease.conversation_id)

        assert recent == blocks[3:]

    async def test_a_conversation_without_a_summary_is_loaded_whole(self, harness: Harness) -> None:
        claim = await harness.start_turn()
        blocks = think(claim, "1", "2")
        blocks += write(claim, summarize("turn", last_seq=1, text="The beginning."), after=blocks)
        await harness.timelines.commit(claim.lease, commit(claim, blocks))

        assert await harness.timelines.load_recent_blocks(harness.principal, claim.lease.conversation_id) == blocks


async def _with_followup(harness: Harness) -> tuple[Claim, Receipt]:
    claim = await harness.start_turn()
    return claim, await harness.say("More.", claim.lease.conversation_id)


def _folding(claim: Claim, receipt: Receipt, text: str) -> Commit:
    assert receipt.signal_id is not None
    blocks = write(claim, SignalBody(signal_id=receipt.signal_id, text=text))
    return commit(claim, blocks, SignalChange(receipt.signal_id, SignalState.APPLIED, round=1))
