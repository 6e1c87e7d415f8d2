"""An answer that something was said before does not end its turn, unless the model only repeats itself."""

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import ANN, Bench
from turn_harness.replies import answer, cut_answer
from turn_harness.signals import CANCEL, FOLLOWUP, STEER, hanging, interrupt, say_before_close, states

from chat_proc.agent.kit import TurnLimits
from chat_proc.agent.signal_folding import STOP_WITHDRAWN
from everturn.timeline.blocks import BlockType, CompletionBody, DeferralBody, PromptBody
from everturn.timeline.turns import Outcome, SignalKind, SignalState
from everturn.turns.model import Commit


async def say_before_each_close(bench: Bench, *signals: tuple[SignalKind, str]) -> None:
    """Say one of these before each attempt to end the turn, until none is left."""
    await bench.say("Hello.")
    left, worker = list(signals), bench.hire()

    async def hook(commit: Commit) -> None:
        if commit.close is not None and left:
            await bench.signal(*left.pop(0))

    worker.timelines.before_commit = hook
    await worker.work()


async def test_a_deferred_answer_is_followed_by_its_outcome() -> None:
    bench = Bench(answer("One."), answer("Two."))

    await say_before_each_close(bench, (FOLLOWUP, "And two?"))

    at = bench.types.index("assistant.completion")
    assert bench.types[at + 1] == "assistant.completion.attempt.outcome"
    (verdict,) = [block.body for block in bench.blocks if isinstance(block.body, DeferralBody)]
    assert verdict.reason == "external_events_arrived"
    assert "arrived before this answer ended the turn" in str(bench.model.requests[1])
    assert "And two?" in str(bench.model.requests[1])
    await check_conversation(bench)


async def test_an_answer_that_ends_its_turn_has_no_verdict() -> None:
    bench = Bench(answer("One."))

    await say_before_each_close(bench)

    assert bench.texts(DeferralBody) == []


async def test_the_latest_answer_has_the_alias() -> None:
    bench = Bench(answer("One."), answer("Two."))

    await say_before_each_close(bench, (FOLLOWUP, "And two?"))

    refs = [block.ref for block in bench.blocks if block.type is BlockType.COMPLETION]
    turn_id = bench.turn_rows[0].id
    assert refs == [f"ar:{turn_id}.assistant.completion.1", f"ar:{turn_id}.assistant.completion.2"]
    assert [text.text for text in bench.state().turns[0].texts if text.channel == "answer"] == ["One.", "Two."]
    assert bench.state().turns[0].answer == "Two."


async def test_the_same_answer_again_ends_the_turn() -> None:
    bench = Bench(answer("It is 42."), answer("It  is 42. "), answer("New."))

    await say_before_each_close(bench, (FOLLOWUP, "Sure?"), (FOLLOWUP, "Really?"))

    assert states(bench) == [SignalState.APPLIED, SignalState.PROMOTED]
    assert bench.texts(PromptBody) == ["Hello.", "Really?"]
    assert [exit_body.outcome for exit_body in bench.exits] == [Outcome.COMPLETED] * 2
    await check_conversation(bench)


async def test_another_answer_to_something_new_is_deferred_again() -> None:
    bench = Bench(answer("It is 42."), answer("Quite sure, as the table says."), answer("Yes, really, by both tables."))

    await say_before_each_close(bench, (FOLLOWUP, "Sure?"), (FOLLOWUP, "Really?"))

    assert len(bench.texts(DeferralBody)) == 2
    assert states(bench) == [SignalState.APPLIED] * 2
    await check_conversation(bench)


async def test_equal_answers_one_after_the_other_are_shown_once() -> None:
    bench = Bench(answer("It is 42."), answer("It is 42."))

    await say_before_each_close(bench, (FOLLOWUP, "Sure?"))

    (turn,) = bench.state().turns
    assert [text.text for text in turn.texts if text.channel == "answer"] == ["It is 42."]
    assert len(bench.texts(CompletionBody)) == 2
    await check_conversation(bench)


async def test_a_followup_when_the_last_round_is_answered_opens_one_more_round() -> None:
    bench = Bench(answer("One."), answer("Two."), limits=TurnLimits(rounds=1))

    await say_before_each_close(bench, (FOLLOWUP, "And two?"))

    assert (bench.exits[0].outcome, bench.exits[0].rounds) == (Outcome.COMPLETED, 2)
    assert states(bench) == [SignalState.APPLIED]
    await check_conversation(bench)


async def test_simultaneous_followups_defer_the_answer_once() -> None:
    bench = Bench(answer("One."), answer("All."))
    await bench.say("Hello.")
    worker = bench.hire()
    say_before_close(bench, worker, (FOLLOWUP, "a"), (FOLLOWUP, "b"), (FOLLOWUP, "c"))

    await worker.work()

    assert len(bench.texts(DeferralBody)) == 1
    followups = [block for block in bench.blocks if block.type is BlockType.USER_FOLLOWUP]
    assert [getattr(block.body, "text", "") for block in followups] == ["a", "b", "c"]
    assert {block.round for block in followups} == {2}
    assert "3 messages arrived" in bench.texts(DeferralBody)[0]
    await check_conversation(bench)


async def test_a_signal_without_a_block_never_holds_the_answer_back() -> None:
    bench = Bench(answer("One."))

    await say_before_each_close(bench, (SignalKind.STEER, " "))

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert SignalState.ACCEPTED not in states(bench)


async def test_a_cancel_before_the_answer_is_written_cancels_and_defers_nothing() -> None:
    bench = Bench(answer("One."))

    await say_before_each_close(bench, (CANCEL, ""))

    assert bench.exits[0].outcome is Outcome.CANCELLED
    assert bench.texts(DeferralBody) == []
    await check_conversation(bench)


async def stop_in_vain(bench: Bench, kind: SignalKind, edit: str | None) -> None:
    """Stop the first answer; just before the turn ends for it the stop is edited, or with None taken back."""
    await bench.say("Hello.")
    worker = bench.hire()

    async def hook(commit: Commit) -> None:
        if commit.close is not None:
            worker.timelines.before_commit = None
            (stop,) = bench.waiting_signals()
            if edit is None:
                await bench.retract(stop)
            else:
                await bench.inbox.save_signal_text(ANN, bench.conversation_id, stop, edit)

    worker.timelines.before_commit = hook
    await interrupt(bench, (kind, ""), worker=worker)


@pytest.mark.parametrize(("kind", "edit"), [(STEER, "Be brief."), (STEER, None), (CANCEL, None)])
async def test_an_answer_cut_by_a_withdrawn_stop_is_completed(kind: SignalKind, edit: str | None) -> None:
    bench = Bench(hanging(cut_answer("One two th")), answer("One two three."))

    await stop_in_vain(bench, kind, edit)

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert bench.texts(CompletionBody) == ["One two th", "One two three."]
    (verdict,) = [block for block in bench.blocks if isinstance(block.body, DeferralBody)]
    assert (verdict.round, verdict.body.reason) == (1, STOP_WITHDRAWN)
    assert "give the whole answer" in str(bench.model.requests[1])
    assert bench.state().turns[0].answer == "One two three."
    await check_conversation(bench)


async def test_a_complete_answer_is_shown_once_after_a_withdrawn_stop() -> None:
    bench = Bench(hanging(cut_answer("One two three.")), answer("One two three."))

    await stop_in_vain(bench, CANCEL, None)

    assert [text.text for text in bench.state().turns[0].texts] == ["One two three."]
    await check_conversation(bench)


async def test_the_next_worker_completes_after_a_withdrawn_stop() -> None:
    bench = Bench(hanging(cut_answer("One two th")), answer("One two three."))
    await bench.say("Hello.")
    await interrupt(bench, (CANCEL, ""), worker=bench.hire(failpoint="turn.before_c3:1:raise"))
    (stop,) = bench.waiting_signals()
    await bench.retract(stop)
    bench.expire_lease()

    await bench.work()

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert bench.types.count("assistant.completion.attempt.outcome") == 1
    await check_conversation(bench)
