import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.signal_folding import draft_deferral, is_same_answer, repeats_deferred
from chat_proc.turn.leased import CommitContent, TurnEnd
from everturn.core.ids import TurnId
from everturn.timeline.blocks import BlockDraft, BlockType, CompletionBody, chain_blocks
from everturn.timeline.progress import TurnProgress, fold_progress
from everturn.timeline.turns import Outcome

CONTEXT = RoundContext(TurnId("turn_1"), 2, 15, "now")


def complete(text: str, context: RoundContext = CONTEXT) -> BlockDraft:
    return context.draft(BlockType.COMPLETION, "ar:x", CompletionBody(text=text))


def stored(*drafts: BlockDraft) -> TurnProgress:
    return fold_progress(chain_blocks(drafts, next_seq=1, last_hash=""))


def end_with(*drafts: BlockDraft) -> TurnEnd:
    return TurnEnd(Outcome.COMPLETED, content=CommitContent(drafts=drafts))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("It is 42.", "it  IS\n42.", True),
        ("The total of the north is 1,204 units.", "The total of the north is 1,204 units!", True),
        ("The total of the north is 1,204 units.", "I can't tell, the table has no north.", False),
        ("Yes.", "Yes. " + "And here is why, at length. " * 9, False),
        ("", "", True),
    ],
)
def test_answers_are_the_same_up_to_nine_tenths(one: str, other: str, same: bool) -> None:
    assert is_same_answer(one, other) is same
    assert is_same_answer(other, one) is same


@given(st.text(max_size=80))
def test_an_answer_is_the_same_as_itself_whatever_its_blanks(text: str) -> None:
    assert is_same_answer(text, f"  {text}\n")


def test_long_answers_are_compared_quickly() -> None:
    one = " ".join(f"word{n % 97}" for n in range(200_000))
    other = " ".join(f"word{(n * 7) % 89}" for n in range(200_000))
    started = time.process_time()

    is_same_answer(one, other)

    assert time.process_time() - started < 2


def test_only_the_answer_deferred_last_is_repeated() -> None:
    deferred = stored(complete("first"), draft_deferral(CONTEXT, 1))

    assert repeats_deferred(deferred, end_with(complete("First")))
    assert not repeats_deferred(deferred, end_with(complete("second")))
    assert not repeats_deferred(deferred, end_with())
    assert not repeats_deferred(stored(complete("first")), end_with(complete("first")))


def test_the_verdict_counts_what_came() -> None:
    assert "A message arrived" in str(draft_deferral(CONTEXT, 1).body)
    assert "2 messages arrived" in str(draft_deferral(CONTEXT, 2).body)
