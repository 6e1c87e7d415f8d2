"""A summary that loses something is named for it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from chat_proc.timeline.compaction.conditions import find_failures
from chat_proc.timeline.compaction.cut import Snapshot, choose_history
from chat_proc.timeline.compaction.summary import Summary, build_summary, draft_summary

Look = Callable[..., Snapshot]


@pytest.fixture
def before(look: Look) -> Snapshot:
    return look(["plan", "anchor", *["big"] * 3, "followup", "turn", "call"])


@pytest.fixture
def summary(before: Snapshot) -> Summary:
    cut = choose_history(before.blocks, before.shown, before.turn_id, excess_tokens=1)
    assert cut is not None
    return build_summary(before, cut)


def failures(before: Snapshot, summary: Summary) -> tuple[str, ...]:
    return find_failures(before, summary, before.plus(draft_summary(before, summary)))


def test_a_good_summary_fails_nothing(before: Snapshot, summary: Summary) -> None:
    assert failures(before, summary) == ()


def test_a_summary_that_saves_nothing_is_refused(before: Snapshot, summary: Summary) -> None:
    assert failures(before, replace(summary, text="word " * 20_000)) == ("no token is saved",)


def test_a_summary_without_text_is_refused(before: Snapshot, summary: Summary) -> None:
    assert "it has no text" in failures(before, replace(summary, text=" \n"))


def test_a_ref_that_was_never_shown_is_a_failure(before: Snapshot, summary: Summary) -> None:
    text = summary.text + "\n- tc:turn_0.call_99.result"

    assert failures(before, replace(summary, text=text)) == ("it names a ref that was never shown",)


def test_a_lost_request_or_anchor_is_a_failure(before: Snapshot, summary: Summary) -> None:
    assert failures(before, replace(summary, kept=())) == ("a request is lost", "an anchor is lost")
    without_followup = tuple(item for item in summary.kept if item.kind != "user.followup")
    assert failures(before, replace(summary, kept=without_followup)) == ("a request is lost",)


def test_a_cut_between_a_call_and_its_result_is_noticed(before: Snapshot, summary: Summary) -> None:
    result = next(block.seq for block in before.blocks if block.type.value == "react.tool.result" and block.seq > 12)
    parted = replace(summary, cut=replace(summary.cut, last_seq=result - 1))

    assert "a call and its result are separated" in failures(before, parted)


def test_a_lost_plan_is_a_failure(before: Snapshot, summary: Summary) -> None:
    (draft, _) = draft_summary(before, summary)

    assert find_failures(before, summary, before.plus([draft])) == ("a plan is lost",)
