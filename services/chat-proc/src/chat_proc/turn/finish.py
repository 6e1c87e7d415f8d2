"""The end of a turn: its terminal block, and the terminal event that clients get from it, whoever sends it."""

from collections.abc import Sequence

from chat_proc.agent.open_turn import TurnEnd
from everturn.errors import Conflict
from everturn.model.block_bodies import CompletionBody, ExitBody
from everturn.model.blocks import Block, BlockDraft, BlockType
from everturn.model.commits import Promotion
from everturn.model.ids import TurnId
from everturn.model.refs import round_ref
from everturn.model.turns import Outcome, TurnStatus, TurnUsage
from everturn.wire.events import ChatComplete, ChatError, ConvStatus


def status_of(end: TurnEnd) -> TurnStatus:
    """The row's status for this end."""
    if end.error is not None:
        return TurnStatus.FAILED
    return TurnStatus.CANCELLED if end.outcome is Outcome.CANCELLED else TurnStatus.COMPLETED


def build_status_after(status: TurnStatus, promote: Promotion | None = None) -> ConvStatus:
    """What the conversation is when a turn has ended with this status."""
    if promote is not None:
        return ConvStatus(state="queued", turn_id=promote.turn_id)
    return ConvStatus(state="error" if status is TurnStatus.FAILED else "idle")


def draft_exit(
    end: TurnEnd, turn_id: TurnId, *, rounds: int, usage: TurnUsage, elapsed_ms: int, now: str
) -> BlockDraft:
    """The terminal block."""
    body = ExitBody(outcome=end.outcome, error=end.error, rounds=rounds, usage=usage, elapsed_ms=elapsed_ms)
    return BlockDraft(turn_id, rounds, BlockType.EXIT, round_ref(turn_id, rounds, "exit"), body, now)


def build_terminal_event(turn_blocks: Sequence[Block]) -> ChatComplete | ChatError:
    """What ends the turn for its clients. Raises Conflict when the turn has no terminal block."""
    body = turn_blocks[-1].body if turn_blocks else None
    if not isinstance(body, ExitBody):
        raise Conflict("The turn has no terminal block.")
    if body.error is not None:
        return ChatError(problem=body.error, rounds=body.rounds, usage=body.usage, elapsed_ms=body.elapsed_ms)
    answer = last_completion(turn_blocks)
    return ChatComplete(
        outcome=(body.outcome or Outcome.COMPLETED).value,
        answer=None if answer is None else answer.shown or answer.text,
        followups=() if answer is None else answer.followups,
        rounds=body.rounds,
        usage=body.usage,
        elapsed_ms=body.elapsed_ms,
        sources_used=() if answer is None else answer.sources_used,
    )


def last_completion(turn_blocks: Sequence[Block]) -> CompletionBody | None:
    """The latest answer of the turn."""
    bodies = (block.body for block in reversed(turn_blocks))
    return next((body for body in bodies if isinstance(body, CompletionBody)), None)
