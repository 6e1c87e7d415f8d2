from chat_proc.agent.kit import TurnLimits
from chat_proc.agent.limits import has_room_for, max_rounds, reached_cap, round_limit
from chat_proc.turn.leased import Spent
from everturn.core.ids import SignalId, TurnId
from everturn.timeline.blocks import BlockDraft, BlockType, EventBody, SignalBody, chain_blocks
from everturn.timeline.progress import TurnProgress, fold_progress
from everturn.timeline.turns import ExternalEvent, Signal, SignalKind, SignalState, TurnUsage
from everturn_testing.core import BEGINNING

LIMITS = TurnLimits(rounds=3, wall_time_s=10, tokens=100, cost_usd=1)
NO_BLOCKS = TurnProgress()


def followups(count: int) -> TurnProgress:
    body = SignalBody(signal_id=SignalId("sig_1"), text="more")
    draft = BlockDraft(TurnId("turn_1"), 1, BlockType.USER_FOLLOWUP, "ref", body, "now")
    return fold_progress(chain_blocks([draft] * count, next_seq=1, last_hash=""))


def test_each_followup_gives_one_round_of_credit_and_at_most_doubles_them() -> None:
    assert round_limit(LIMITS, NO_BLOCKS) == 3
    assert round_limit(LIMITS, followups(2)) == 5
    assert round_limit(LIMITS, followups(9)) == 6


def test_nothing_is_reached_below_the_caps() -> None:
    assert reached_cap(LIMITS, Spent(TurnUsage(input_tokens=50, output_tokens=49, cost_usd=0.9), 9.9)) is None


def test_time_tokens_and_money_are_caps() -> None:
    assert "10 s" in (reached_cap(LIMITS, Spent(TurnUsage(), 10.0)) or "")
    assert "100 tokens" in (reached_cap(LIMITS, Spent(TurnUsage(input_tokens=60, output_tokens=40), 0.0)) or "")
    assert "1.00 USD" in (reached_cap(LIMITS, Spent(TurnUsage(cost_usd=1.0), 0.0)) or "")


def said(*signals: tuple[BlockType, int]) -> TurnProgress:
    body = SignalBody(signal_id=SignalId("sig_1"), text="more")
    drafts = [BlockDraft(TurnId("turn_1"), number, kind, "ref", body, "now") for kind, number in signals]
    return fold_progress(chain_blocks(drafts, next_seq=1, last_hash=""))


def say(kind: SignalKind, event: ExternalEvent | None = None) -> Signal:
    return Signal(SignalId("sig_1"), TurnId("turn_1"), kind, "x", SignalState.ACCEPTED, BEGINNING, event=event)


def happened(round_number: int, credit: int) -> TurnProgress:
    body = EventBody(signal_id=SignalId("sig_1"), kind="form", text="x", credit=credit)
    draft = BlockDraft(TurnId("turn_1"), round_number, BlockType.EXTERNAL_EVENT, "ref", body, "now")
    return fold_progress(chain_blocks([draft], next_seq=1, last_hash=""))


def test_an_event_adds_the_rounds_that_it_says() -> None:
    assert round_limit(LIMITS, happened(1, credit=2)) == 5
    assert round_limit(LIMITS, happened(1, credit=0)) == 3
    assert round_limit(LIMITS, happened(1, credit=9)) == 6


def test_an_event_that_the_turn_began_with_adds_none() -> None:
    assert round_limit(LIMITS, happened(0, credit=2)) == 3


def test_an_event_without_credit_is_heard_only_while_a_round_is_left() -> None:
    assert has_room_for(LIMITS, NO_BLOCKS, [say(SignalKind.EVENT, ExternalEvent("form"))], after=2)
    assert not has_room_for(LIMITS, NO_BLOCKS, [say(SignalKind.EVENT, ExternalEvent("form"))], after=3)
    assert has_room_for(LIMITS, NO_BLOCKS, [say(SignalKind.EVENT, ExternalEvent("form", iteration_credit=1))], after=3)


FOLLOWUP, STEER = BlockType.USER_FOLLOWUP, BlockType.USER_STEER


def test_a_steer_leaves_its_round_and_one_more_wherever_it_comes() -> None:
    assert round_limit(LIMITS, said((STEER, 1))) == 2
    assert round_limit(LIMITS, said((STEER, 4))) == 5
    assert round_limit(LIMITS, said((STEER, 2), (STEER, 3))) == 4
    assert said((STEER, 1)).is_finalizing


def test_a_steer_earns_no_credit() -> None:
    assert not has_room_for(LIMITS, said((STEER, 1)), [say(SignalKind.STEER)], after=max_rounds(LIMITS))
    assert round_limit(LIMITS, said((STEER, 1), (FOLLOWUP, 2))) == 4


def test_a_followup_ends_the_phase_after_a_steer() -> None:
    for progress in (said((STEER, 2), (FOLLOWUP, 2)), said((FOLLOWUP, 2), (STEER, 2)), said((STEER, 2), (FOLLOWUP, 3))):
        assert not progress.is_finalizing
        assert round_limit(LIMITS, progress) == 4
    assert said((FOLLOWUP, 1), (STEER, 2)).is_finalizing


def test_a_followup_after_a_steer_beyond_the_base_has_its_round() -> None:
    assert round_limit(LIMITS, said((STEER, 5), (FOLLOWUP, 6))) == 6


def test_no_steers_make_a_turn_longer_than_any_may_be() -> None:
    assert round_limit(LIMITS, said((STEER, 8))) == max_rounds(LIMITS) == 8


def test_there_is_room_while_a_round_is_left_with_the_credit_of_what_came() -> None:
    assert has_room_for(LIMITS, NO_BLOCKS, [say(SignalKind.FOLLOWUP)], after=3)
    assert not has_room_for(LIMITS, followups(3), [say(SignalKind.FOLLOWUP)], after=6)
    assert has_room_for(LIMITS, NO_BLOCKS, [say(SignalKind.STEER)], after=7)
    assert not has_room_for(LIMITS, NO_BLOCKS, [], after=1)
