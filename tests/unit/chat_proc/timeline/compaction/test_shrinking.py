"""Whatever a conversation holds, after a compaction its request fits, and nothing that must stay is lost."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from chat_proc.timeline.compaction.conditions import Shrunk, shrink_by_rules
from chat_proc.timeline.compaction.cut import ContextLimits, Snapshot, find_summary
from chat_proc.timeline.compaction.sections import find_refs
from chat_proc.timeline.compaction.summary import is_intent
from chat_proc.timeline.present import current_plan, latest_plans
from chat_proc.timeline.view import TimelineView, choose_cache_points
from everturn.core.refs import turn_index_ref
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import AnchorBody, Block, BlockType, PlanBody, RangeSummaryBody, parse_body
from everturn.timeline.rendering import block_source
from everturn_testing.long_conversations import STEPS, play_conversation
from everturn_testing.timeline import NOW, TimelineBuilder

LIMITS = ContextLimits(8_000)
FIXED = 400
TALKS = st.lists(st.sampled_from(STEPS), max_size=40)
HEAVY = st.lists(st.sampled_from([*STEPS, "big", "big", "big", "json", "turn"]), min_size=8, max_size=40)


def look(timeline: TimelineBuilder, limits: ContextLimits = LIMITS) -> Snapshot:
    return Snapshot(tuple(timeline.blocks), timeline.turn_id, timeline.round, NOW, FIXED, limits, CharsPerToken(4.0))


def text_of(snapshot: Snapshot) -> str:
    return "".join(item.text for item in snapshot.shown)


def recent(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """What a worker loads that takes the conversation over."""
    summary = find_summary(blocks, "history")
    covered = summary.body.last_seq if summary and isinstance(summary.body, RangeSummaryBody) else 0
    return tuple(block for block in blocks if block.seq > covered)


@settings(max_examples=60, deadline=None)
@given(steps=HEAVY)
@example(steps=["big"] * 30)
@example(steps=["big", "turn"] * 15)
@example(steps=["followup"] * 40)
def test_after_a_compaction_the_request_fits(steps: list[str]) -> None:
    before = look(play_conversation(steps))

    shrunk = shrink_by_rules(before)

    assert shrunk.fits, (before.tokens, shrunk.snapshot.tokens)
    assert shrunk.snapshot.tokens <= before.tokens
    assert bool(shrunk.drafts) == (shrunk.snapshot.tokens < before.tokens)


@settings(max_examples=60, deadline=None)
@given(steps=HEAVY)
def test_every_signal_every_prompt_and_the_newest_anchors_stay_visible(steps: list[str]) -> None:
    before = look(play_conversation(steps))

    after = shrink_by_rules(before).snapshot

    shown = text_of(after)
    for block in before.blocks:
        if block.type is BlockType.USER_PROMPT:
            assert block.ref in shown or f"ar:{block.turn_id}.react.turn.index" in shown
        elif is_intent(block):
            assert block.ref in shown
    anchors = [block.ref for block in before.blocks if isinstance(block.body, AnchorBody)]
    assert all(ref in shown for ref in anchors[-32:])


@settings(max_examples=60, deadline=None)
@given(steps=HEAVY)
def test_a_call_and_its_result_are_both_shown_or_both_gone(steps: list[str]) -> None:
    after = shrink_by_rules(look(play_conversation(steps))).snapshot

    seen = {item.block.seq for item in after.shown}
    sides: dict[str, set[bool]] = {}
    for block in after.blocks:
        if block.type in (BlockType.TOOL_CALL, BlockType.TOOL_RESULT):
            sides.setdefault(str(block.call_id), set()).add(block.seq in seen)
    assert all(len(shown) == 1 for shown in sides.values())


@settings(max_examples=50, deadline=None)
@given(steps=HEAVY)
def test_the_view_is_the_same_after_loading_from_the_last_summary(steps: list[str]) -> None:
    after = shrink_by_rules(look(play_conversation(steps))).snapshot

    stored = [parse_body(block.type, block.body_json) for block in after.blocks]

    assert stored == [block.body for block in after.blocks]
    loaded = TimelineView(recent(after.blocks))
    assert "".join(item.text for item in loaded.items) == text_of(after)


@settings(max_examples=50, deadline=None)
@given(steps=HEAVY)
def test_the_open_plans_are_the_same_when_the_range_is_not_loaded(steps: list[str]) -> None:
    before = look(play_conversation(steps))

    loaded = recent(shrink_by_rules(before).snapshot.blocks)

    assert current_plan(loaded) == current_plan(before.blocks)
    assert {plan.plan_id for plan in latest_plans(before.blocks) if plan.status == "open"} <= {
        plan.plan_id for plan in latest_plans(loaded)
    }


@settings(max_examples=60, deadline=None)
@given(first=HEAVY, then=HEAVY)
def test_a_second_compaction_builds_on_the_first(first: list[str], then: list[str]) -> None:
    whole = play_conversation([*first, *then])
    begun = play_conversation(first)
    once = shrink_by_rules(look(begun))
    later = append(once, whole.blocks[len(begun.blocks) :])

    twice = shrink_by_rules(later)

    assert twice.fits
    summaries = [item for item in twice.snapshot.shown if item.block.type is BlockType.RANGE_SUMMARY]
    scopes = [item.block.body.scope for item in summaries if isinstance(item.block.body, RangeSummaryBody)]
    assert scopes.count("history") <= 1
    in_turns = [item.block.turn_id for item in summaries if item.block.ref.rpartition(".")[0].endswith("checkpoint")]
    assert len(in_turns) == len(set(in_turns)), "only the newest checkpoint of a turn is shown"
    assert text_of(twice.snapshot).count("[COMPACTED PRIOR CONVERSATION MEMORY]") <= 1


def append(once: Shrunk, blocks: list[Block]) -> Snapshot:
    """The blocks again behind those of a compaction, as the rest of the conversation would have been written."""
    timeline = TimelineBuilder()
    timeline.blocks = list(once.snapshot.blocks)
    for block in blocks:
        timeline.turn_id, timeline.round = block.turn_id, block.round
        timeline.add(block.type, block.ref, block.body, call_id=block.call_id)
    return look(timeline)


def test_nothing_is_done_to_a_request_that_is_short() -> None:
    before = look(play_conversation(["call", "turn", "call"]))

    assert shrink_by_rules(before) == Shrunk(before)


def test_nothing_new_behind_a_summary_changes_nothing() -> None:
    once = shrink_by_rules(look(play_conversation(["big", "turn"] * 8)))

    assert shrink_by_rules(once.snapshot).drafts == ()


def test_a_giant_prompt_alone_is_kept_by_its_beginning_and_its_ref() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Count the following words: " + "word " * 20_000)

    shrunk = shrink_by_rules(look(timeline))

    assert shrunk.fits
    shown = text_of(shrunk.snapshot)
    assert "Count the following words" in shown
    assert "ar:turn_1.user.prompt" in shown


def test_a_giant_result_is_covered_with_its_call() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Read it all.")
    timeline.start_round()
    timeline.call("call_1", "react.read", {"path": "big"})
    timeline.result("call_1", "react.read", "text " * 10_000)

    shrunk = shrink_by_rules(look(timeline, ContextLimits(4_000)))

    assert shrunk.fits
    shown = text_of(shrunk.snapshot)
    assert "tc:turn_1.call_1.call" in shown
    assert "tc:turn_1.call_1.result" in shown
    assert "Read it all." in shown


def test_the_current_turn_is_never_part_of_the_memory_of_earlier_turns() -> None:
    shrunk = shrink_by_rules(look(play_conversation(["big", "turn", "big", "turn", *["big"] * 8])))

    current = shrunk.snapshot.turn_id
    first_of_current = next(block.seq for block in shrunk.snapshot.blocks if block.turn_id == current)
    bodies = [draft.body for draft in shrunk.drafts if isinstance(draft.body, RangeSummaryBody)]
    assert [body.scope for body in bodies] == ["history", "turn"]
    assert bodies[0].last_seq < first_of_current <= bodies[1].first_seq


def test_hidden_blocks_are_summarized_by_their_replacement() -> None:
    shrunk = shrink_by_rules(look(play_conversation([*["big"] * 3, "hide", *["big"] * 8])))

    (body,) = [draft.body for draft in shrunk.drafts if isinstance(draft.body, RangeSummaryBody)]
    assert "hidden: It was noise." in body.text


def test_the_current_plan_is_carried_although_its_block_is_gone() -> None:
    before = look(play_conversation(["plan", "mark", "plan", *["big", "turn"] * 6]))

    shrunk = shrink_by_rules(before)

    plans = [draft for draft in shrunk.drafts if draft.type is BlockType.PLAN_HISTORY]
    assert len(plans) == 1
    assert not any(isinstance(block.body, PlanBody) for block in recent(shrunk.snapshot.blocks))
    assert current_plan(recent(shrunk.snapshot.blocks)) == current_plan(before.blocks) is not None


def test_every_turn_of_a_very_long_conversation_is_at_most_two_reads_away() -> None:
    timeline, turns = TimelineBuilder(), 150
    for number in range(turns):
        timeline.start_turn(f"turn_{number}", f"Request {number} about the year {1800 + number}.")
        timeline.start_round()
        timeline.call(f"call_{number}", "demo.big", {})
        timeline.result(f"call_{number}", "demo.big", "word " * 1_000)
        timeline.blocks = list(shrink_by_rules(look(timeline)).snapshot.blocks)
        timeline.answer("Done.")
    shown = text_of(look(timeline))

    memories = {block.ref: block_source(block) for block in summaries(timeline)}
    first_reads = set(find_refs(shown))
    second_reads = {ref for seen in first_reads if seen in memories for ref in find_refs(memories[seen])}

    assert {turn_index_ref(f"turn_{number}") for number in range(turns - 2)} <= first_reads | second_reads
    assert len(shown) < 8_000 * 4


def summaries(timeline: TimelineBuilder) -> list[Block]:
    return [block for block in timeline.blocks if isinstance(block.body, RangeSummaryBody)]


def test_a_compaction_keeps_the_turn_header_and_cache_points() -> None:
    after = shrink_by_rules(look(play_conversation(["big", "turn", *["big"] * 10]))).snapshot
    view = TimelineView(after.blocks)

    points = choose_cache_points(view.items, view.turn_at)

    assert [item.block.turn_id for item in view.items if item.block.type is BlockType.TURN_HEADER] == [after.turn_id]
    assert 0 < len(points.indexes) <= 3
    assert all(0 <= at < len(view.items) for at in points.indexes)
