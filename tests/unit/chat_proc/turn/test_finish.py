import pytest

from chat_proc.agent.open_turn import TurnEnd
from chat_proc.turn.finish import build_status_after, build_terminal_event, draft_exit, last_completion, status_of
from everturn.errors import Conflict
from everturn.model.block_bodies import CompletionBody
from everturn.model.blocks import BlockDraft, BlockType, chain_blocks
from everturn.model.commits import Promotion
from everturn.model.ids import TurnId
from everturn.model.problems import problem
from everturn.model.turns import Outcome, TurnStatus, TurnUsage
from everturn.wire.events import ChatComplete, ChatError

TURN = TurnId("turn_1")
FAILURE = problem("model", "The model failed.", 503)


def blocks(end: TurnEnd, *completions: CompletionBody):
    drafts = [BlockDraft(TURN, 1, BlockType.COMPLETION, "ref", body, "now") for body in completions]
    drafts.append(draft_exit(end, TURN, rounds=2, usage=TurnUsage(input_tokens=5), elapsed_ms=7, now="now"))
    return chain_blocks(drafts, next_seq=1, last_hash="")


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


def test_the_terminal_event_tells_the_last_answer_as_it_was_shown() -> None:
    first = CompletionBody(text="one")
    last = CompletionBody(text="two [[S:1]]", shown="two (1)", followups=("Why?",), sources_used=(1,))

    event = build_terminal_event(blocks(TurnEnd(Outcome.COMPLETED), first, last))

    assert event == ChatComplete(
        outcome="completed",
        answer="two (1)",
        followups=("Why?",),
        rounds=2,
        usage=TurnUsage(input_tokens=5),
        elapsed_ms=7,
        sources_used=(1,),
    )


def test_a_turn_without_an_answer_says_so() -> None:
    event = build_terminal_event(blocks(TurnEnd(Outcome.CANCELLED)))

    assert isinstance(event, ChatComplete)
    assert (event.outcome, event.answer) == ("cancelled", None)


def test_a_failure_tells_its_problem() -> None:
    event = build_terminal_event(blocks(TurnEnd(None, FAILURE)))

    assert isinstance(event, ChatError)
    assert event.problem == FAILURE


def test_an_open_turn_has_no_terminal_event() -> None:
    with pytest.raises(Conflict):
        build_terminal_event(())
    with pytest.raises(Conflict):
        build_terminal_event(blocks(TurnEnd(Outcome.COMPLETED), CompletionBody(text="one"))[:1])


def test_the_last_completion_counts() -> None:
    assert last_completion(()) is None
    found = last_completion(blocks(TurnEnd(Outcome.COMPLETED), CompletionBody(text="a"), CompletionBody(text="b")))
    assert found == CompletionBody(text="b")


def test_the_conversation_is_idle_in_error_or_queued_after_a_turn() -> None:
    assert build_status_after(TurnStatus.COMPLETED).state == "idle"
    assert build_status_after(TurnStatus.CANCELLED).state == "idle"
    assert build_status_after(TurnStatus.FAILED).state == "error"
    queued = build_status_after(TurnStatus.FAILED, Promotion((), TurnId("turn_2"), ""))
    assert (queued.state, queued.turn_id) == ("queued", "turn_2")
