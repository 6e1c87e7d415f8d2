"""The view is a fold over blocks alone: it grows at its end, and what shrinks it is a block."""

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from chat_proc.timeline.view import Break, BreakReason, TimelineView, VisibleBlock
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import (
    AnchorBody,
    BlockType,
    ExitBody,
    HideBody,
    KeptText,
    NotesBody,
    NoticeBody,
    PlanHistoryBody,
    RangeSummaryBody,
    SummaryBody,
    SystemMessageBody,
)
from everturn.timeline.forms import Form
from everturn.timeline.turns import Outcome, TurnUsage
from everturn_testing.timeline import TimelineBuilder, first_broken_link

STEPS = ["turn", "round", "signal", "anchor", "summary", "hide", "prune", "history", "checkpoint", "same ref"]


def end_turn(timeline: TimelineBuilder, text: str = "done", *, summary: str = "") -> None:
    timeline.answer(text)
    turn_id = timeline.turn_id
    if summary:
        body = SummaryBody(text=summary)
        timeline.add(BlockType.WORKING_SUMMARY, f"ws:{turn_id}.conv.working.summary", body)
    leave = ExitBody(outcome=Outcome.COMPLETED, rounds=timeline.round, usage=TurnUsage(), elapsed_ms=1)
    timeline.add(BlockType.EXIT, f"ar:{turn_id}.round.{timeline.round}.exit", leave)


def play_round(timeline: TimelineBuilder, text: str = "result") -> None:
    timeline.start_round()
    call_id = f"call_{len(timeline.blocks)}"
    timeline.think("hm")
    timeline.call(call_id, "demo.echo", {"text": text})
    timeline.result(call_id, "demo.echo", text)


def summarize(
    timeline: TimelineBuilder, scope: Literal["history", "turn"], first: int, last: int, text: str = "what was"
) -> None:
    kept = (KeptText(ref="ar:turn_0.round.1.note", kind="react.note", text="[P] metric units"),)
    body = RangeSummaryBody(
        scope=scope, first_seq=first, last_seq=last, turn_ids=("turn_0",), text=text, kept=kept,
        before_tokens=100, after_tokens=10, by="rules",
    )  # fmt: skip
    timeline.add(BlockType.RANGE_SUMMARY, f"su:{timeline.turn_id}.conv.range.summary", body)


def prune(timeline: TimelineBuilder, recent_from: int, intact_from: int, text: str = "Pruned.") -> None:
    body = SystemMessageBody(
        kind="cache_ttl_pruned", text=text, recent_from_seq=recent_from, intact_from_seq=intact_from
    )
    timeline.add(BlockType.SYSTEM_MESSAGE, f"ar:{timeline.turn_id}.round.{timeline.round}.pruned", body)


def hide(timeline: TimelineBuilder, *refs: str, replacement: str = "big table") -> None:
    body = HideBody(refs=refs, through_seq=len(timeline.blocks), replacement=replacement)
    timeline.add(BlockType.HIDE, f"ar:{timeline.turn_id}.round.{timeline.round}.hide", body)


def shown(view: TimelineView) -> list[tuple[str, str]]:
    return [(item.block.type.value, item.form.value) for item in view.items]


def text_of(view: TimelineView) -> str:
    return "".join(item.text for item in view.items)


def first_seq(timeline: TimelineBuilder, turn_id: str) -> int:
    return next(block.seq for block in timeline.blocks if block.turn_id == turn_id)


def play(steps: list[str], numbers: list[int]) -> TimelineBuilder:
    """A timeline of these steps; `numbers` choose the places that hides, prunes and summaries name."""
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Begin")
    for n, step in enumerate(steps, start=1):
        number = numbers[n % len(numbers)] % len(timeline.blocks) + 1
        match step:
            case "turn":
                end_turn(timeline, "done" * 40, summary="Goal: x" if number % 2 else "")
                timeline.start_turn(f"turn_{n}", "Next " * 50)
            case "signal":
                timeline.say("followup", f"sig_{n}", "more")
            case "anchor":
                timeline.add(BlockType.ANCHOR, f"ar:turn_{n}.round.1.note", AnchorBody(text="[D] decided"))
            case "summary":
                body = SummaryBody(text="Goal: y")
                timeline.add(BlockType.WORKING_SUMMARY, f"ws:{timeline.turn_id}.conv.working.summary", body)
            case "hide":
                hide(timeline, timeline.blocks[number - 1].ref, replacement=f"hidden {n}")
            case "prune":
                prune(timeline, number, number + 5)
            case "history":
                summarize(timeline, "history", 1, number)
            case "checkpoint":
                summarize(timeline, "turn", first_seq(timeline, timeline.turn_id), number)
            case "same ref":
                timeline.result("call_same", "demo.echo", "again " * 300)
            case _:
                play_round(timeline, "result " * 100)
    return timeline


@given(
    steps=st.lists(st.sampled_from(STEPS), max_size=14),
    numbers=st.lists(st.integers(0, 200), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_the_view_is_the_same_however_its_blocks_come(steps: list[str], numbers: list[int], sizes: list[int]) -> None:
    blocks = play(steps, numbers).blocks
    grown = TimelineView()

    at, n = 0, 0
    while at < len(blocks):
        size = sizes[n % len(sizes)]
        grown.extend(blocks[at : at + size])
        at, n = at + size, n + 1

    whole = TimelineView(blocks)
    assert grown.items == whole.items
    assert (grown.chars, grown.turn_at, grown.turn_id) == (whole.chars, whole.turn_at, whole.turn_id)
    assert whole.chars == len(text_of(whole))
    assert whole.breaks == []


@given(
    steps=st.lists(st.sampled_from(STEPS), max_size=14),
    numbers=st.lists(st.integers(0, 200), min_size=1, max_size=5),
)
def test_what_was_visible_stays_until_a_break_is_declared(steps: list[str], numbers: list[int]) -> None:
    view = TimelineView()
    before: list[VisibleBlock] = []

    for block in play(steps, numbers).blocks:
        declared = len(view.breaks)
        view.extend([block])
        kept = min((each.index for each in view.breaks[declared:]), default=len(before))
        assert view.items[:kept] == before[:kept]
        assert all(each.seq == block.seq for each in view.breaks[declared:])
        before = list(view.items)


@given(
    steps=st.lists(st.sampled_from(STEPS), max_size=14),
    numbers=st.lists(st.integers(0, 200), min_size=1, max_size=5),
)
def test_the_newest_turn_is_never_pruned_nor_summarized_away(steps: list[str], numbers: list[int]) -> None:
    timeline = play(steps, numbers)

    view = TimelineView(timeline.blocks)

    newest = view.items[view.turn_at :]
    assert newest[0].block.type is BlockType.TURN_HEADER
    assert {item.form for item in newest} <= {Form.FULL, Form.REPLACED}


def test_without_breaks_each_block_is_rendered_once() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    view = TimelineView(timeline.blocks)

    built: list[int] = []
    for _ in range(20):
        at, before = len(timeline.blocks), view.texts_built
        play_round(timeline)
        view.extend(timeline.blocks[at:])
        built.append(view.texts_built - before)

    assert set(built) == {3}


def test_a_break_renders_only_what_changes_its_form() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    for _ in range(20):
        play_round(timeline)
    view = TimelineView(timeline.blocks)
    before = view.texts_built

    at = len(timeline.blocks)
    hide(timeline, timeline.blocks[-1].ref)
    view.extend(timeline.blocks[at:])

    assert view.texts_built - before == 1
    assert [each.reason for each in view.breaks] == [BreakReason.HIDE]


def test_a_history_summary_replaces_its_blocks_and_comes_first() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Tell me about beavers")
    end_turn(timeline)
    last = len(timeline.blocks)
    timeline.start_turn("turn_1", "And otters?")
    summarize(timeline, "history", 1, last, "They asked about beavers.")
    timeline.start_round()

    view = TimelineView(timeline.blocks)

    assert shown(view) == [("conv.range.summary", "full"), ("turn.header", "full"), ("user.prompt", "full")]
    assert view.items[0].text == (
        "[COMPACTED PRIOR CONVERSATION MEMORY]\n"
        "path=su:turn_1.conv.range.summary; stands for the earlier turns\n"
        "They asked about beavers.\n"
        "Anchors:\n"
        "- ar:turn_0.round.1.note: [P] metric units\n\n"
    )


def test_only_the_newest_history_summary_is_shown() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "One")
    timeline.start_turn("turn_1", "Two")
    summarize(timeline, "history", 1, 2, "first")
    timeline.start_turn("turn_2", "Three")
    summarize(timeline, "history", 1, first_seq(timeline, "turn_2") - 1, "second")

    view = TimelineView(timeline.blocks)

    assert [item.block.type.value for item in view.items] == ["conv.range.summary", "turn.header", "user.prompt"]
    assert "second" in view.items[0].text


def test_a_summary_never_covers_its_own_turn() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    play_round(timeline)
    summarize(timeline, "history", 1, len(timeline.blocks))

    view = TimelineView(timeline.blocks)

    assert ("user.prompt", "full") in shown(view)
    assert ("react.tool.result", "full") in shown(view)


def test_a_checkpoint_replaces_the_rounds_that_it_covers() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    first = len(timeline.blocks) + 1
    play_round(timeline)
    play_round(timeline)
    last = len(timeline.blocks)
    play_round(timeline, "third")
    summarize(timeline, "turn", first, last, "two rounds")

    view = TimelineView(timeline.blocks)

    assert [kind for kind, _ in shown(view)] == [
        "turn.header", "user.prompt", "conv.range.summary", "react.thinking", "react.tool.call", "react.tool.result",
    ]  # fmt: skip
    assert view.items[2].text.startswith("[MID-TURN CHECKPOINT]\n")


def test_only_the_newest_checkpoint_of_a_turn_is_shown() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    first = len(timeline.blocks) + 1
    play_round(timeline)
    summarize(timeline, "turn", first, len(timeline.blocks), "one")
    play_round(timeline)
    summarize(timeline, "turn", first, len(timeline.blocks), "two")

    text = text_of(TimelineView(timeline.blocks))

    assert text.count("[MID-TURN CHECKPOINT]") == 1
    assert "\ntwo\n" in text


def test_an_old_turn_shows_all_its_working_summaries() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Old question")
    play_round(timeline)
    body = SummaryBody(text="Goal: first attempt")
    timeline.add(BlockType.WORKING_SUMMARY, "ws:turn_0.conv.working.summary", body)
    end_turn(timeline, "old answer", summary="Goal: second attempt")
    timeline.start_turn("turn_1", "New question")
    start = first_seq(timeline, "turn_1")
    prune(timeline, start, start)

    view = TimelineView(timeline.blocks)

    assert shown(view)[:4] == [
        ("turn.header", "full"),
        ("conv.working.summary", "card"),
        ("conv.working.summary", "card"),
        ("react.exit", "row"),
    ]
    assert "completed after 1 rounds; all of it: ar:turn_0.react.turn.index" in view.items[3].text
    assert "old answer" not in text_of(view)


def test_an_old_turn_without_a_working_summary_shows_one_row_for_each_ref() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Old question " * 40)
    play_round(timeline, "word " * 200)
    timeline.result("call_same", "demo.echo", "older " * 100)
    timeline.result("call_same", "demo.echo", "newer " * 100)
    end_turn(timeline, "old answer " * 100)
    timeline.start_turn("turn_1", "New question")
    start = first_seq(timeline, "turn_1")
    prune(timeline, start, start)

    view = TimelineView(timeline.blocks)

    old = [item for item in view.items if item.block.turn_id == "turn_0"]
    assert [item.block.type.value for item in old] == [
        "turn.header", "user.prompt", "react.tool.call", "react.tool.result", "react.tool.result",
        "assistant.completion", "react.exit",
    ]  # fmt: skip
    assert {item.form for item in old[1:]} == {Form.ROW}
    assert "older" not in text_of(view)
    assert all(item.block.ref in item.text for item in old[1:])


def test_anchors_signals_and_plan_history_are_never_pruned() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Old question")
    timeline.start_round()
    timeline.add(BlockType.ANCHOR, "ar:turn_0.round.1.note", AnchorBody(text="[P] short answers"))
    timeline.say("followup", "sig_1", "and the mean")
    timeline.say("steer", "sig_2", "stop the table")
    timeline.add(BlockType.PLAN_HISTORY, "ar:turn_0.round.1.plans", PlanHistoryBody(plans=()))
    end_turn(timeline, summary="Goal: x")
    timeline.start_turn("turn_1", "New question")
    start = first_seq(timeline, "turn_1")
    prune(timeline, start, start)

    view = TimelineView(timeline.blocks)

    full = {kind for kind, form in shown(view)[: view.turn_at] if form == "full"}
    assert full == {"turn.header", "react.note", "user.followup", "user.steer", "react.plan.history"}


def test_earlier_prune_notices_collapse() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "One")
    prune(timeline, 1, 1, "first notice")
    timeline.start_turn("turn_1", "Two")
    prune(timeline, 1, 1, "second notice")

    text = text_of(TimelineView(timeline.blocks))

    assert "first notice" not in text
    assert "second notice" in text


def test_a_hidden_block_of_a_pruned_turn_shows_its_replacement_once() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Old question")
    timeline.result("call_same", "demo.echo", "a table")
    timeline.result("call_same", "demo.echo", "a table")
    hide(timeline, "tc:turn_0.call_same.result", replacement="the table of May")
    end_turn(timeline, summary="Goal: x")
    timeline.start_turn("turn_1", "New question")
    start = first_seq(timeline, "turn_1")
    prune(timeline, start, start)

    text = text_of(TimelineView(timeline.blocks))

    assert text.count("[react.tool.result tc:turn_0.call_same.result] ok (hidden)\nthe table of May\n") == 1
    assert "a table" not in text


def test_what_comes_after_a_hide_under_the_same_ref_is_visible() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    timeline.result("call_same", "demo.echo", "first")
    hide(timeline, "tc:turn_0.call_same.result")
    timeline.result("call_same", "demo.echo", "read again")

    view = TimelineView(timeline.blocks)

    assert [item.form for item in view.items[2:]] == [Form.REPLACED, Form.FULL]


def test_a_hide_of_nothing_visible_breaks_nothing() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    view = TimelineView(timeline.blocks)

    hide(timeline, "tc:turn_0.call_gone.result")
    view.extend(timeline.blocks[2:])

    assert view.breaks == []


def test_a_break_names_its_reason_its_block_and_how_much_stays() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    play_round(timeline, "a" * 2000)
    end_turn(timeline)
    timeline.start_turn("turn_1", "Go on")
    view = TimelineView(timeline.blocks)

    start = first_seq(timeline, "turn_1")
    prune(timeline, 1, start)
    view.extend(timeline.blocks[-1:])

    assert view.breaks == [Break(BreakReason.PRUNE, len(timeline.blocks), 4)]
    assert shown(view)[4] == ("react.tool.result", "light")


def test_tokens_follow_the_ratio_that_was_learnt() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    view = TimelineView(timeline.blocks)

    assert view.tokens(CharsPerToken(2.0)) == -(-view.chars // 2)


def test_what_is_not_visible_is_gone() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    timeline.start_round()
    view = TimelineView(timeline.blocks)

    assert [view.form_of(block) for block in timeline.blocks] == [Form.FULL, Form.FULL, Form.GONE]


def test_the_view_leaves_the_stored_blocks_as_they_are() -> None:
    timeline = play(["round", "turn", "round", "hide", "prune", "history", "checkpoint"], [7])
    before = [(block.hash, block.body_json, block.body) for block in timeline.blocks]

    TimelineView(timeline.blocks)

    assert [(block.hash, block.body_json, block.body) for block in timeline.blocks] == before
    assert first_broken_link(timeline.blocks) is None


def test_a_hidden_block_counts_as_its_replacement() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    timeline.result("call_1", "demo.echo", "a" * 10_000)
    before = TimelineView(timeline.blocks).tokens(CharsPerToken())

    hide(timeline, "tc:turn_0.call_1.result", replacement="a table")

    assert TimelineView(timeline.blocks).tokens(CharsPerToken()) < before / 20


def test_what_is_read_again_after_pruning_is_shown_whole() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Old question")
    timeline.result("call_1", "demo.echo", "fact " * 500)
    end_turn(timeline)
    timeline.start_turn("turn_1", "New question")
    start = first_seq(timeline, "turn_1")
    prune(timeline, start, start)
    timeline.result("call_2", "react.read", "status\n\n" + "fact " * 500)

    view = TimelineView(timeline.blocks)

    assert [item.form for item in view.items if "call_" in item.block.ref] == [Form.ROW, Form.FULL]
    assert text_of(view).count("fact " * 500) == 1


def test_an_old_turn_loses_its_scaffolding_and_shows_each_answer_once() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Old question")
    timeline.start_round()
    timeline.think("what now")
    timeline.add(BlockType.NOTES, "ar:turn_0.react.notes.call_1", NotesBody(text="I look"))
    timeline.add(BlockType.NOTICE, "ar:turn_0.round.1.notice", NoticeBody(code="x", text="fix it"))
    timeline.answer("first version " * 30)
    timeline.answer("last version " * 30)
    timeline.start_turn("turn_1", "New question")
    start = first_seq(timeline, "turn_1")
    prune(timeline, start, start)

    view = TimelineView(timeline.blocks)

    old = [item.block.type.value for item in view.items if item.block.turn_id == "turn_0"]
    assert old == ["turn.header", "user.prompt", "assistant.completion"]
    assert "first version" not in text_of(view)


def test_thinking_is_absent_from_summarized_ranges() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    first = len(timeline.blocks) + 1
    play_round(timeline)
    summarize(timeline, "turn", first, len(timeline.blocks))

    assert "react.thinking" not in [kind for kind, _ in shown(TimelineView(timeline.blocks))]


def test_a_replacement_is_shown_in_full() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Old question")
    timeline.result("call_1", "demo.echo", "a table")
    replacement = "Totals by month: " + ", ".join(f"{month} {month * 1000}" for month in range(400))
    hide(timeline, "tc:turn_0.call_1.result", replacement=replacement)
    end_turn(timeline)
    timeline.start_turn("turn_1", "New question")
    start = first_seq(timeline, "turn_1")
    prune(timeline, start, start)

    assert replacement in text_of(TimelineView(timeline.blocks))
