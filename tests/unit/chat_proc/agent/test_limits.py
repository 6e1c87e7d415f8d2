from chat_proc.agent.limits import Spent, TurnLimits, base_rounds, reached_cap, round_limit
from everturn.model.block_bodies import SignalBody, TurnHeaderBody
from everturn.model.blocks import Block, BlockDraft, BlockType, chain_blocks
from everturn.model.ids import SignalId, TurnId
from everturn.model.turns import TurnUsage

LIMITS = TurnLimits(rounds=3, wall_time_s=10, tokens=100, cost_usd=1)


def followups(count: int) -> tuple[Block, ...]:
    body = SignalBody(signal_id=SignalId("sig_1"), text="more")
    draft = BlockDraft(TurnId("turn_1"), 1, BlockType.USER_FOLLOWUP, "ref", body, "now")
    return chain_blocks([draft] * count, next_seq=1, last_hash="")


def test_each_followup_gives_one_round_of_credit_and_at_most_doubles_them() -> None:
    assert round_limit(LIMITS, ()) == 3
    assert round_limit(LIMITS, followups(2)) == 5
    assert round_limit(LIMITS, followups(9)) == 6


def test_a_turn_of_a_bundle_with_rounds_of_its_own_has_those() -> None:
    limits = TurnLimits(rounds=3, rounds_of_bundle={"b": 2})
    header = TurnHeaderBody(ordinal=1, bundle_id="b")
    (begun,) = chain_blocks(
        [BlockDraft(TurnId("turn_1"), 0, BlockType.TURN_HEADER, "ref", header, "now")], next_seq=1, last_hash=""
    )

    assert base_rounds(limits, ()) == 3
    assert base_rounds(limits, [begun]) == 2
    assert round_limit(limits, [begun, *followups(9)]) == 4


def test_nothing_is_reached_below_the_caps() -> None:
    assert reached_cap(LIMITS, Spent(TurnUsage(input_tokens=50, output_tokens=49, cost_usd=0.9), 9.9)) is None


def test_time_tokens_and_money_are_caps() -> None:
    assert "10 s" in (reached_cap(LIMITS, Spent(TurnUsage(), 10.0)) or "")
    assert "100 tokens" in (reached_cap(LIMITS, Spent(TurnUsage(input_tokens=60, output_tokens=40), 0.0)) or "")
    assert "1.00 USD" in (reached_cap(LIMITS, Spent(TurnUsage(cost_usd=1.0), 0.0)) or "")
