"""A summary that loses something is named for it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from chat_proc.timeline.compaction.conditions import find_failures
from chat_proc.timeline.compaction.cut import Snapshot, choose_history
from chat_proc.timeline.compaction.memory import Memory, build_memory, draft_memory

Look = Callable[..., Snapshot]


@pytest.fixture
def before(look: Look) -> Snapshot:
    return look(["plan", "anchor", *["big"] * 3, "followup", "turn", "call"])


@pytest.fixture
def memory(before: Snapshot) -> Memory:
    cut = choose_history(before.blocks, before.shown, before.turn_id, excess_tokens=1)
    assert cut is not None
    return build_memory(before, cut)


def failures(before: Snapshot, memory: Memory) -> tuple[str, ...]:
    return find_failures(before, memory, before.plus(draft_memory(before, memory)))


def test_a_good_summary_fails_nothing(before: Snapshot, memory: Memory) -> None:
    assert failures(before, memory) == ()


def test_a_summary_that_saves_nothing_is_refused(before: Snapshot, memory: Memory) -> None:
    assert failures(before, replace(memory, text="word " * 20_000)) == ("no token is saved",)


def test_a_summary_without_text_is_refused(before: Snapshot, memory: Memory) -> None:
    assert "it has no text" in failures(before, replace(memory, text=" \n"))


def test_a_ref_that_nobody_was_shown_is_noticed(before: Snapshot, memory: Memory) -> None:
    text = memory.text + "\n- tc:turn_0.call_99.result"

    assert failures(before, replace(memory, text=text)) == ("it names a ref that nobody was shown",)


def test_a_lost_wish_or_anchor_is_noticed(before: Snapshot, memory: Memory) -> None:
    assert failures(before, replace(memory, kept=())) == ("something that was asked is lost", "an anchor is lost")
    without_followup = tuple(item for item in memory.kept if item.kind != "user.followup")
    assert failures(before, replace(memory, kept=without_followup)) == ("something that was asked is lost",)


def test_a_cut_between_a_call_and_its_result_is_noticed(before: Snapshot, memory: Memory) -> None:
    result = next(block.seq for block in before.blocks if block.type.value == "react.tool.result" and block.seq > 12)
    parted = replace(memory, cut=replace(memory.cut, last_seq=result - 1))

    assert "a call and its result are parted" in failures(before, parted)


def test_plans_that_nobody_carries_are_noticed(before: Snapshot, memory: Memory) -> None:
    (summary, _) = draft_memory(before, memory)

    assert find_failures(before, memory, before.plus([summary])) == ("a plan is lost",)
