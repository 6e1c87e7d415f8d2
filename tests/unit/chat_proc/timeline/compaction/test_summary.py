"""Summaries from rules and from a model's reply, and the blocks they become."""

from collections.abc import Callable

from chat_proc.timeline.compaction.cut import Cut, Reach, Snapshot, choose_history, choose_rounds
from chat_proc.timeline.compaction.sections import Section, parse_sections
from chat_proc.timeline.compaction.summary import build_summary, carry_plans, draft_summary, try_read_summary
from everturn.timeline.blocks import BlockType, PlanHistoryBody, RangeSummaryBody
from everturn_testing.timeline import TimelineBuilder

Look = Callable[..., Snapshot]
REPLY = """## Active request
- sales of 2020 (tc:turn_0.call_1.result)
## Done
- read the report tc:turn_9.call_9.result
- wrote a table
## Preferences
- tables
"""


def cut_all(snapshot: Snapshot) -> Cut:
    cut = choose_history(snapshot.blocks, snapshot.shown, snapshot.turn_id, excess_tokens=1_000_000)
    assert cut is not None
    return cut


def go_on(snapshot: Snapshot, look: Look, *texts: str) -> Snapshot:
    """The conversation with some turns more."""
    timeline = TimelineBuilder()
    timeline.blocks = list(snapshot.blocks)
    for n, text in enumerate(texts):
        timeline.start_turn(f"turn_more{n}", text)
    return look(timeline)


def test_lines_of_a_reply_with_unknown_refs_are_left_out(look: Look) -> None:
    snapshot = look(["big", "turn"])

    summary = try_read_summary(snapshot, cut_all(snapshot), REPLY)

    assert summary is not None
    assert summary.by == "model"
    assert parse_sections(summary.text) == {
        Section.ACTIVE: ["sales of 2020 (tc:turn_0.call_1.result)"],
        Section.DONE: ["wrote a table"],
        Section.PREFERENCES: ["tables"],
    }


def test_a_refusal_or_an_empty_reply_is_no_summary(look: Look) -> None:
    snapshot = look(["big", "turn"])

    for reply in ("", "I can't help with that.", "## Done\n- everything"):
        assert try_read_summary(snapshot, cut_all(snapshot), reply) is None


def test_earlier_preferences_stay_whatever_the_model_writes(look: Look) -> None:
    first = look(["anchor", "turn"])
    summary = try_read_summary(first, cut_all(first), REPLY)
    assert summary is not None
    later = go_on(first.plus(draft_summary(first, summary)), look, "More", "And more")

    again = try_read_summary(later, cut_all(later), "## Active request\n- x\n## Done\n- y")

    assert again is not None
    assert parse_sections(again.text)[Section.PREFERENCES] == ["tables", "likes form 1"]


def test_rules_carry_the_content_of_the_summary_before(look: Look) -> None:
    first = look(["turn", "turn"])
    summary = build_summary(first, cut_all(first))
    later = go_on(first.plus(draft_summary(first, summary)), look, "More", "And more")

    again = build_summary(later, cut_all(later))

    old, new = parse_sections(summary.text), parse_sections(again.text)
    assert set(old[Section.DONE]) < set(new[Section.DONE]) | set(new[Section.OPEN])
    assert new[Section.FACTS] == old[Section.FACTS]
    assert new[Section.ACTIVE] == ["The last of these turns asked: More"]


def test_a_checkpoint_by_a_model_has_the_ledger_that_rules_write(look: Look) -> None:
    snapshot = look(["big", "file", "call"])
    cut = choose_rounds(snapshot.blocks, snapshot.shown, snapshot.turn_id, Reach.ROUNDS, excess_tokens=1_000_000)
    assert cut is not None

    summary = try_read_summary(snapshot, cut, REPLY + "## Calls\n- demo() invented")

    assert summary is not None
    calls = parse_sections(summary.text)[Section.CALLS]
    assert [line.partition(" ")[0] for line in calls] == ["demo.big(n=1)", "demo.file(n=2)"]


def test_the_summary_names_its_range_its_turns_and_its_tokens(look: Look) -> None:
    snapshot = look(["big", "turn", "turn"])

    (draft,) = draft_summary(snapshot, build_summary(snapshot, cut_all(snapshot)))

    assert (draft.type, draft.ref, draft.turn_id) == (
        BlockType.RANGE_SUMMARY,
        "su:turn_3.conv.range.summary",
        "turn_3",
    )
    assert isinstance(draft.body, RangeSummaryBody)
    assert draft.body.turn_ids == ("turn_0", "turn_2")
    assert (draft.body.first_seq, draft.body.last_seq) == (1, snapshot.blocks[-3].seq)
    assert draft.body.before_tokens == snapshot.tokens
    assert draft.body.after_tokens == snapshot.plus([draft]).tokens < snapshot.tokens


def test_checkpoints_of_a_turn_are_numbered(look: Look) -> None:
    snapshot = look(["call", "call", "call"])
    cut = choose_rounds(snapshot.blocks, snapshot.shown, snapshot.turn_id, Reach.ROUNDS, excess_tokens=1)
    assert cut is not None
    (first,) = draft_summary(snapshot, build_summary(snapshot, cut))
    then = snapshot.plus([first])

    (second,) = draft_summary(then, build_summary(then, cut))

    assert first.ref == "ar:turn_0.round.3.checkpoint.1"
    assert second.ref == "ar:turn_0.round.3.checkpoint.2"


def test_unchanged_plans_of_the_range_follow_the_summary(look: Look) -> None:
    snapshot = look(["plan", "plan", "plan", "turn", "mark"])

    drafts = draft_summary(snapshot, build_summary(snapshot, cut_all(snapshot)))

    assert [draft.type for draft in drafts] == [BlockType.RANGE_SUMMARY, BlockType.PLAN_HISTORY]
    assert isinstance(drafts[1].body, PlanHistoryBody)
    assert [plan.plan_id for plan in drafts[1].body.plans] == ["plan_1", "plan_2"]
    assert all(plan.snapshot_ref for plan in drafts[1].body.plans)


def test_ended_plans_are_carried_up_to_a_number_and_open_ones_always(look: Look) -> None:
    snapshot = look(["plan", *["plan", "close plan"] * 15, "plan", "turn"])

    carried = carry_plans(snapshot, snapshot.blocks[-1].seq)

    closed = [plan for plan in carried if plan.status == "closed"]
    assert len(closed) == 12
    assert [plan.plan_id for plan in carried if plan.status == "open"] == ["plan_1", "plan_32"]
    assert closed[-1].plan_id == "plan_30"
