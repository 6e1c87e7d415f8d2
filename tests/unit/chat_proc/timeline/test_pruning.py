"""Pruning is decided as a turn opens: after a pause, for whole turns, and only when it changes what is shown."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from chat_proc.timeline.pruning import PrunePolicy, try_draft_prune
from chat_proc.timeline.view import TimelineView
from everturn.core.ids import TurnId
from everturn.timeline.blocks import BlockDraft, BlockType, PromptBody, SystemMessageBody, TurnHeaderBody, chain_blocks
from everturn.timeline.forms import Form
from everturn_testing.timeline import NOW, TimelineBuilder

POLICY = PrunePolicy()


def play(turns: int, *, answer: str = "word " * 2_000) -> TimelineBuilder:
    timeline = TimelineBuilder()
    for number in range(turns):
        timeline.start_turn(f"turn_{number}", "A question that is long enough to be cut. " * 10)
        timeline.start_round()
        timeline.answer(answer)
    return timeline


def open_turn(after_s: float) -> tuple[BlockDraft, ...]:
    ts = (datetime.fromisoformat(NOW) + timedelta(seconds=after_s)).isoformat()
    turn_id = TurnId("turn_new")
    header = BlockDraft(turn_id, 0, BlockType.TURN_HEADER, "ar:turn_new.round.0.header", TurnHeaderBody(ordinal=9), ts)
    prompt = BlockDraft(turn_id, 0, BlockType.USER_PROMPT, "ar:turn_new.user.prompt", PromptBody(text="And now?"), ts)
    return header, prompt


def view_after(timeline: TimelineBuilder, policy: PrunePolicy = POLICY) -> TimelineView:
    header, prompt = open_turn(400)
    notice = try_draft_prune(policy, timeline.blocks, (header, prompt))
    assert notice is not None
    drafts = chain_blocks((header, notice, prompt), next_seq=len(timeline.blocks) + 1, last_hash="")
    return TimelineView([*timeline.blocks, *drafts])


def forms_by_turn(view: TimelineView) -> dict[str, set[Form]]:
    forms: dict[str, set[Form]] = {}
    for item in view.items:
        if item.block.type is not BlockType.TURN_HEADER:
            forms.setdefault(item.block.turn_id, set()).add(item.form)
    return forms


@pytest.mark.parametrize(("after_s", "pruned"), [(0, False), (289, False), (290, True), (100_000, True)])
def test_older_turns_are_pruned_after_the_cache_has_gone_cold(after_s: float, pruned: bool) -> None:
    assert (try_draft_prune(POLICY, play(3).blocks, open_turn(after_s)) is not None) is pruned


def test_six_turns_stay_recent_and_one_intact() -> None:
    forms = forms_by_turn(view_after(play(9)))

    assert {turn for turn, shown in forms.items() if shown == {Form.ROW}} == {"turn_0", "turn_1", "turn_2"}
    assert {turn for turn, shown in forms.items() if Form.LIGHT in shown} == {f"turn_{n}" for n in range(3, 8)}
    assert forms["turn_8"] == {Form.FULL}
    assert forms["turn_new"] == {Form.FULL}


def test_the_notice_says_what_is_short_and_how_to_see_it_again() -> None:
    notice = try_draft_prune(POLICY, play(9).blocks, open_turn(400))

    assert notice is not None
    assert isinstance(notice.body, SystemMessageBody)
    assert "3 of the turns above" in notice.body.text
    assert "5 after them without their bulky results" in notice.body.text
    assert "react.read" in notice.body.text


def test_nothing_is_written_if_the_view_would_not_change() -> None:
    assert try_draft_prune(POLICY, play(3, answer="Done.").blocks, open_turn(400)) is None
    assert try_draft_prune(POLICY, [], open_turn(400)) is None
    assert try_draft_prune(POLICY, play(3).blocks, ()) is None


def test_pruning_can_be_switched_off() -> None:
    assert try_draft_prune(replace(POLICY, ttl_s=0), play(9).blocks, open_turn(10**6)) is None


def test_pruning_again_later_shows_more_turns_short() -> None:
    timeline = play(9)
    header, prompt = open_turn(400)
    first = try_draft_prune(POLICY, timeline.blocks, (header, prompt))
    assert first is not None
    drafts = chain_blocks((header, first, prompt), next_seq=len(timeline.blocks) + 1, last_hash="")
    later = tuple(replace(draft, turn_id=TurnId("turn_later"), ts="2026-03-02T12:00:00.000Z") for draft in open_turn(0))

    second = try_draft_prune(POLICY, [*timeline.blocks, *drafts], later)

    assert second is not None
    assert isinstance(second.body, SystemMessageBody)
    assert isinstance(first.body, SystemMessageBody)
    assert second.body.recent_from_seq > first.body.recent_from_seq
