"""What a worker writes at once: blocks with all the rows that must be true exactly when the blocks are."""

from dataclasses import dataclass
from enum import StrEnum

from everturn.core.errors import Problem
from everturn.core.ids import ApprovalId, CallId, SignalId, TurnId
from everturn.core.leases import EventCursor
from everturn.core.open_values import OpenEnum
from everturn.files.model import Artifact
from everturn.timeline.blocks import Block
from everturn.timeline.sources import SourceChange
from everturn.timeline.turns import Outcome, SignalState, TurnStatus, TurnUsage
from everturn.turns.approvals import ApprovalRequest


class Effect(StrEnum):
    """What repeating a tool call would do: nothing, the same again, or something that can't be undone."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    IRREVERSIBLE = "irreversible"


class EffectState(OpenEnum):
    """How far a tool call's effect has come."""

    INTENDED = "intended"
    COMMITTED = "committed"
    FAILED = "failed"
    AMBIGUOUS = "ambiguous"

    @classmethod
    def stand_in(cls) -> "EffectState":
        """Nobody here knows whether the call took effect."""
        return cls.AMBIGUOUS


@dataclass(frozen=True, slots=True)
class EffectChange:
    """A row of the effect ledger. `args_hash` is over the tool id and its canonical parameters."""

    call_id: CallId
    tool_id: str
    args_hash: str
    effect: Effect
    state: EffectState


@dataclass(frozen=True, slots=True)
class UsageEvent:
    """One model call. `role` says what the call was for, such as `decision`.

    `cost_known` is false where nobody knows a price; the cost is then 0.
    """

    model: str
    role: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float
    estimated: bool
    cost_known: bool = True


@dataclass(frozen=True, slots=True)
class SignalChange:
    """A signal gets its final state."""

    signal_id: SignalId
    state: SignalState
    round: int | None = None


@dataclass(frozen=True, slots=True)
class Promotion:
    """Signals that came too late become the next turn, in the transaction that ends this one."""

    signal_ids: tuple[SignalId, ...]
    turn_id: TurnId
    text: str


@dataclass(frozen=True, slots=True)
class TurnClose:
    """A turn ends. `seen_inbox` is the inbox the worker has folded; a larger one in the database refuses the commit."""

    status: TurnStatus
    outcome: Outcome | None
    error: Problem | None
    usage: TurnUsage
    seen_inbox: int
    title: str | None = None
    """For a conversation that has none."""
    promote: Promotion | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction of a lease holder. `cursor` is the last event id given out so far.

    `requests` are approvals that a person is asked for from now on; `withdrawn` are asked no more.
    """

    turn_id: TurnId
    blocks: tuple[Block, ...]
    cursor: EventCursor
    effects: tuple[EffectChange, ...] = ()
    usage: tuple[UsageEvent, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    signals: tuple[SignalChange, ...] = ()
    sources: tuple[SourceChange, ...] = ()
    requests: tuple[ApprovalRequest, ...] = ()
    withdrawn: tuple[ApprovalId, ...] = ()
    close: TurnClose | None = None
