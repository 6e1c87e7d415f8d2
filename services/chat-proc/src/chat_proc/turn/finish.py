"""The end of a turn: its status, its terminal block, and what its conversation is after it."""

from chat_proc.agent.open_turn import OpenTurn, TurnEnd, Writing
from everturn.model.block_bodies import CompletionBody, ExitBody
from everturn.model.blocks import BlockDraft, BlockType
from everturn.model.commits import Promotion
from everturn.model.ids import TurnId
from everturn.model.problems import problem
from everturn.model.refs import completion_ref, round_ref
from everturn.model.turns import Outcome, TurnStatus, TurnUsage
from everturn.timeline.inert import is_blank
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


def build_crash_end(turn: OpenTurn, shown: str) -> TurnEnd:
    """The end of a turn on which our own code failed again and again. An answer that was shown is kept."""
    if is_blank(shown):
        detail = (
            "This is a fault of the server, not of your message. Try again; if it happens again, tell the operator."
        )
        return TurnEnd(
            None, problem("internal-error", "The server failed while it was working on this turn", 500, detail)
        )
    number = 1 + sum(1 for block in turn.turn_blocks if block.type is BlockType.COMPLETION)
    rounds = max((block.round for block in turn.turn_blocks), default=1)
    completion = BlockDraft(
        turn.turn_id,
        rounds,
        BlockType.COMPLETION,
        completion_ref(turn.turn_id, number),
        CompletionBody(text=shown),
        turn.now(),
    )
    return TurnEnd(Outcome.CUT, writing=Writing(drafts=(completion,), rewind=True), cut_reason="server_error")


def draft_exit(
    end: TurnEnd, turn_id: TurnId, *, rounds: int, usage: TurnUsage, elapsed_ms: int, now: str
) -> BlockDraft:
    """The terminal block."""
    body = ExitBody(
        outcome=end.outcome,
        cut_reason=end.cut_reason if end.error is None else None,
        error=end.error,
        rounds=rounds,
        usage=usage,
        elapsed_ms=elapsed_ms,
    )
    return BlockDraft(turn_id, rounds, BlockType.EXIT, round_ref(turn_id, rounds, "exit"), body, now)
