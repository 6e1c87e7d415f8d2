"""What is covered first, and when nothing is."""

from collections.abc import Callable

from chat_proc.timeline.compaction.cut import HARD_STEPS, SOFT_STEPS, Snapshot, Step, choose_cut, find_step, is_worth

Look = Callable[..., Snapshot]


def test_older_turns_come_before_older_rounds_and_both_before_the_prompt(look: Look) -> None:
    assert HARD_STEPS == (Step.HISTORY, Step.ROUNDS, Step.PROMPT, Step.EVERYTHING)
    assert HARD_STEPS[:2] == SOFT_STEPS
    assert find_step(look([*["big", "turn"] * 6, *["big"] * 3]), SOFT_STEPS) is Step.HISTORY
    assert find_step(look(["call", "turn", *["big"] * 8]), SOFT_STEPS) is Step.ROUNDS


def test_a_request_that_is_short_enough_is_left_alone_whatever_it_holds(look: Look) -> None:
    snapshot = look(["call"] * 30, max_tokens=80_000)

    assert all(choose_cut(snapshot, step) is None for step in HARD_STEPS)
    assert find_step(snapshot, HARD_STEPS) is None


def test_the_rest_of_the_request_counts_too(look: Look) -> None:
    snapshot = look(["call"] * 12)
    crowded = Snapshot(
        snapshot.blocks, snapshot.turn_id, snapshot.round, snapshot.now, 7_900, snapshot.limits, snapshot.ratio
    )

    assert choose_cut(snapshot, Step.ROUNDS) is None
    assert choose_cut(crowded, Step.ROUNDS) is not None


def test_the_last_resorts_are_for_requests_above_the_hard_limit_only(look: Look) -> None:
    soft = look(["big"], max_tokens=4_600)
    hard = look(["big"], max_tokens=3_000)

    assert soft.limits.soft < soft.tokens < soft.limits.hard
    assert choose_cut(soft, Step.PROMPT) is None
    assert choose_cut(hard, Step.PROMPT) is not None


def test_a_summary_that_would_save_next_to_nothing_is_not_worth_it(look: Look) -> None:
    snapshot = look(["turn", "big", "big", "big"])
    history = choose_cut(snapshot, Step.HISTORY)

    assert history is not None
    assert not is_worth(snapshot, history)
    assert find_step(snapshot, SOFT_STEPS) is Step.ROUNDS
