import pytest

from chat_proc.turn.leased import TurnEnd, build_status_after, draft_exit, status_of
from everturn.core.errors import problem
from everturn.core.ids import TurnId
from everturn.timeline.blocks import BlockType, ExitBody
from everturn.timeline.turns import Outcome, TurnStatus, TurnUsage
from everturn.turns.model import Promotion

TURN = TurnId("turn_1")
FAILURE = problem("model", "The model failed.", 503)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (TurnEnd(Outcome.COMPLETED), TurnStatus.COMPLETED),
        (TurnEnd(Outcome.STOPPED), TurnStatus.COMPLETED),
        (TurnEnd(Outcome.CAPPED), TurnStatus.COMPLETED),
        (TurnEnd(Outcome.CANCELLED), TurnStatus.CANCELLED),
        (TurnEnd(None, FAILURE), TurnStatus.FAILED),
    ],
)
def test_each_end_has_its_status(end: TurnEnd, status: TurnStatus) -> None:
    assert status_of(end) is status


@pytest.mark.parametrize("end", [TurnEnd(Outcome.STOPPED), TurnEnd(None, FAILURE)])
def test_the_terminal_block_says_how_the_turn_ended_and_what_it_took(end: TurnEnd) -> None:
    usage = TurnUsage(input_tokens=5)

    draft = draft_exit(end, TURN, rounds=2, usage=usage, elapsed_ms=7, now="now")

    assert (draft.type, draft.round, draft.ts) == (BlockType.EXIT, 2, "now")
    assert draft.body == ExitBody(outcome=end.outcome, error=end.error, rounds=2, usage=usage, elapsed_ms=7)


def test_the_conversation_is_idle_in_error_or_queued_after_a_turn() -> None:
    assert build_status_after(TurnStatus.COMPLETED).state == "idle"
    assert build_status_after(TurnStatus.CANCELLED).state == "idle"
    assert build_status_after(TurnStatus.FAILED).state == "error"
    queued = build_status_after(TurnStatus.FAILED, Promotion((), TurnId("turn_2"), ""))
    assert (queued.state, queued.turn_id) == ("queued", "turn_2")
