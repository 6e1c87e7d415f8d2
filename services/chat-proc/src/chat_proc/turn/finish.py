"""The end of a turn: its status, its terminal block, and what its conversation is after it."""

from chat_proc.agent.open_turn import TurnEnd
from everturn.model.block_bodies import ExitBody
from everturn.model.blocks import BlockDraft, BlockType
from everturn.model.commits import Promotion
from everturn.model.ids import TurnId
from everturn.model.refs import round_ref
from everturn.model.turns import Outcome, TurnStatus, TurnUsage
from everturn.wire.events import ConvStatus


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
