"""A summary covers whole turns of the history, or whole rounds of the current turn."""

from collections.abc import Callable

from chat_proc.timeline.compaction.conditions import shrink_by_rules
from chat_proc.timeline.compaction.cut import Cut, Reach, Snapshot, choose_history, choose_rounds, find_summary

Look = Callable[..., Snapshot]


def history(snapshot: Snapshot, excess_tokens: int) -> Cut | None:
    return choose_history(snapshot.blocks, snapshot.shown, snapshot.turn_id, excess_tokens=excess_tokens)


def rounds(snapshot: Snapshot, reach: Reach, excess_tokens: int = 1) -> Cut | None:
    return choose_rounds(snapshot.blocks, snapshot.shown, snapshot.turn_id, reach, excess_tokens=excess_tokens)


def turns_of(cut: Cut | None) -> list[str]:
    assert cut is not None
    return list(dict.fromkeys(block.turn_id for block in cut.blocks))


def rounds_of(cut: Cut | None) -> list[int]:
    assert cut is not None
    return list(dict.fromkeys(block.round for block in cut.blocks))


def test_as_few_of_the_oldest_turns_are_covered_as_are_needed(look: Look) -> None:
    snapshot = look(["big", "turn"] * 4)

    assert turns_of(history(snapshot, 1)) == ["turn_0"]
    assert turns_of(history(snapshot, 4_000)) == ["turn_0", "turn_2"]


def test_all_ended_turns_are_covered_if_necessary(look: Look) -> None:
    snapshot = look([*["big", "turn"] * 2, *["big"] * 3])

    assert turns_of(history(snapshot, 1_000_000)) == ["turn_0", "turn_2"]


def test_a_first_turn_has_no_history(look: Look) -> None:
    assert history(look(["big"] * 3), 1) is None


def test_a_turn_that_is_needed_in_part_is_covered_whole(look: Look) -> None:
    cut = history(look(["call", "big", "call", "turn", "call", "turn"]), 1_000)

    assert turns_of(cut) == ["turn_0"]
    assert cut is not None
    assert cut.blocks[-1].type.value == "react.exit"


def test_a_later_cut_begins_where_the_summary_before_it_ended(look: Look) -> None:
    before = look([*["big", "turn"] * 3, "call", "turn", "call"])
    once = shrink_by_rules(before).snapshot
    previous = find_summary(once.blocks, "history")
    assert previous is not None

    cut = history(once, 1_000_000)

    assert cut is not None
    assert (cut.first_seq, cut.previous) == (1, previous)
    assert cut.blocks[0].seq == getattr(previous.body, "last_seq", 0) + 1


def test_rounds_are_covered_from_the_oldest_and_the_last_one_stays(look: Look) -> None:
    snapshot = look(["call", "big", "call", "big"])

    assert rounds_of(rounds(snapshot, Reach.ROUNDS)) == [1]
    assert rounds_of(rounds(snapshot, Reach.ROUNDS, 1_000_000)) == [1, 2, 3]


def test_the_prompt_is_only_covered_where_that_is_allowed(look: Look) -> None:
    snapshot = look(["call", "big"])

    assert rounds_of(rounds(snapshot, Reach.PROMPT, 1_000_000)) == [0, 1]
    assert rounds_of(rounds(snapshot, Reach.ALL, 1_000_000)) == [0, 1, 2]


def test_signals_of_the_open_round_stay_with_the_last_round(look: Look) -> None:
    snapshot = look(["call", "big", "call", "followup"])
    cut = rounds(snapshot, Reach.ROUNDS, 1_000_000)

    assert cut is not None
    assert not any(block.type.value == "user.followup" for block in cut.blocks)


def test_a_turn_without_a_round_has_nothing_to_cover_but_its_prompt(look: Look) -> None:
    snapshot = look([])

    assert rounds(snapshot, Reach.ROUNDS) is None
    assert rounds_of(rounds(snapshot, Reach.PROMPT)) == [0]


def test_a_second_checkpoint_covers_the_first_one_too(look: Look) -> None:
    snapshot = shrink_by_rules(look(["big"] * 8)).snapshot
    first = find_summary(snapshot.blocks, "turn")
    assert first is not None

    cut = rounds(snapshot, Reach.ALL, 1_000_000)

    assert cut is not None
    assert cut.previous == first
    assert cut.first_seq < getattr(first.body, "first_seq", 0)
    assert cut.last_seq > getattr(first.body, "last_seq", 0)


def test_hidden_and_covered_blocks_save_nothing(look: Look) -> None:
    plain, hidden = look(["big", "turn", "call"]), look(["big", "hide", "turn", "call"])
    one, other = history(plain, 1), history(hidden, 1)

    assert one is not None and other is not None
    assert other.saved_tokens < one.saved_tokens - 1_000
