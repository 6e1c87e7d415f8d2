"""The short ways to act make what the ports accept."""

from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import ORIGIN
from everturn.timeline.blocks import GENESIS_HASH
from everturn.timeline.turns import TurnStatus
from everturn.turns.model import Claim, Lease
from everturn_testing.timeline import first_broken_link
from everturn_testing.turns.harness import ANN, STRANGERS, closing, commit, summarize, think, write

CLAIM = Claim(
    Lease(ConversationId("conv_1"), ANN, "worker-1", 1), TurnId("turn_1"), 0, 1, GENESIS_HASH, ORIGIN, inbox_seq=1
)


def test_blocks_are_chained_after_the_claim_and_after_each_other() -> None:
    first = think(CLAIM, "a", "b")
    then = think(CLAIM, "c", after=first)

    assert [block.seq for block in first + then] == [1, 2, 3]
    assert first_broken_link(first + then) is None


def test_a_summary_is_written_like_any_block() -> None:
    (block,) = write(CLAIM, summarize("history", last_seq=3, text="Before."))

    assert block.type.value == "conv.range.summary"


def test_a_closing_commit_ends_the_claims_turn() -> None:
    ending = closing(CLAIM, seen_inbox=1, failed=True)

    assert ending.close is not None
    assert (ending.close.status, ending.close.outcome) == (TurnStatus.FAILED, None)
    assert ending.close.error is not None
    assert commit(CLAIM, ending.blocks).close is None


def test_no_stranger_is_ann() -> None:
    assert len({(who.tenant, who.project, who.user_id) for who in (*STRANGERS, ANN)}) == 4
