"""What a summary keeps: every wish, the newest anchors, and the way to what it does not list."""

from collections.abc import Callable, Sequence

from chat_proc.timeline.compaction.cut import Cut, Snapshot, choose_history, find_summary
from chat_proc.timeline.compaction.summary import (
    ANCHOR,
    ASKED,
    CHAPTER,
    HISTORY_SIZES,
    build_summary,
    draft_summary,
    fit_kept,
    gather_kept,
)
from everturn.core.ids import SignalId, TurnId
from everturn.timeline.blocks import AnchorBody, BlockType, EventBody, KeptText
from everturn_testing.timeline import TimelineBuilder, build_file

Look = Callable[..., Snapshot]


def cut_all(snapshot: Snapshot) -> Cut:
    cut = choose_history(snapshot.blocks, snapshot.shown, snapshot.turn_id, excess_tokens=1_000_000)
    assert cut is not None
    return cut


def kinds(kept: Sequence[KeptText], *wanted: str) -> list[str]:
    return [item.ref for item in kept if item.kind in wanted]


def test_prompts_followups_steers_and_events_are_all_kept(look: Look) -> None:
    snapshot = look(["followup", "steer", "event", "turn"])

    kept = gather_kept(cut_all(snapshot), snapshot.turn_id, listed_turns=40)

    assert [item.kind for item in kept] == ["user.prompt", "user.followup", "user.steer", "event.external"]
    assert kept[1].text == "Please mind number 1."
    assert kept[3].text == "form: Form 3 came."


def test_the_newest_32_anchors_are_kept_verbatim(look: Look) -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    for n in range(40):
        body = AnchorBody(text=f"likes {n}\nand more", tags=("P",))
        timeline.add(BlockType.ANCHOR, f"ar:turn_1.round.0.note{n}", body)
    timeline.start_turn("turn_2", "On")
    snapshot = look(timeline)

    kept = [item for item in gather_kept(cut_all(snapshot), TurnId("turn_2"), listed_turns=40) if item.kind == ANCHOR]

    assert len(kept) == 32
    assert kept[-1].text == "[P] likes 39\nand more"


def test_attachments_are_named_with_what_they_came_with(look: Look) -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    timeline.say("followup", "sig_1", "", build_file("turn_1", "a.csv", b"x"))
    event = EventBody(signal_id=SignalId("sig_2"), kind="alert", text="")
    timeline.add(BlockType.EXTERNAL_EVENT, "ar:turn_1.external.alert.sig_2", event)
    timeline.start_turn("turn_2", "On")
    snapshot = look(timeline)

    kept = gather_kept(cut_all(snapshot), TurnId("turn_2"), listed_turns=40)

    assert [item.text for item in kept] == ["Go", "(attached: fi:turn_1.user.attachments/a.csv)", "alert:"]


def test_a_full_summary_becomes_a_chapter_of_the_next_one(look: Look) -> None:
    first = look(["turn"] * 5)
    drafts = draft_summary(first, build_summary(first, cut_all(first)))
    timeline = TimelineBuilder()
    timeline.blocks = list(first.plus(drafts).blocks)
    for n in range(2):
        timeline.start_turn(f"turn_late{n}", f"Late {n}")
    snapshot = look(timeline)
    previous = find_summary(snapshot.blocks, "history")
    assert previous is not None

    kept = gather_kept(cut_all(snapshot), TurnId("turn_late1"), listed_turns=5)

    assert kinds(kept, CHAPTER) == [previous.ref]
    assert len(kinds(kept, *ASKED)) == 2
    assert "5 turns, from “Request 0" in kept[0].text
    assert not kinds(gather_kept(cut_all(snapshot), TurnId("turn_late1"), listed_turns=40), CHAPTER)


def test_a_summary_of_the_same_turn_is_no_chapter(look: Look) -> None:
    first = look(["turn"] * 5)
    again = first.plus(draft_summary(first, build_summary(first, cut_all(first))))
    previous = find_summary(again.blocks, "history")

    kept = gather_kept(Cut("history", 1, 9, first.blocks[:9], previous, 1), first.turn_id, listed_turns=1)

    assert not kinds(kept, CHAPTER)


def test_texts_give_way_to_the_room_there_is_but_refs_stay() -> None:
    kept = [KeptText(ref=f"ar:turn_{n}.user.prompt", kind="user.prompt", text="word " * 40) for n in range(20)]

    roomy = fit_kept(kept, HISTORY_SIZES, 100_000, len)
    narrow = fit_kept(kept, HISTORY_SIZES, 2_500, len)
    none = fit_kept(kept, HISTORY_SIZES, 0, len)

    assert list(roomy) == [item.model_copy(update={"text": item.text.strip()}) for item in kept]
    assert all(0 < len(item.text) < 160 for item in narrow)
    assert [item.ref for item in none] == [item.ref for item in kept]
    assert all(item.text == "" for item in none)
