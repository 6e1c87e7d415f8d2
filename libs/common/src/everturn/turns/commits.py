"""One commit of a worker: blocks, and all rows that must change in the same transaction."""

from dataclasses import dataclass
from enum import StrEnum

from everturn.core.errors import Problem
from everturn.core.ids import ApprovalId, CallId, SignalId, TurnId
from everturn.core.open_values import OpenEnum
from everturn.events.cursor import EventCursor
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
    """Progress of a tool call's effect."""

    INTENDED = "intended"
    COMMITTED = "committed"
    FAILED = "failed"
    AMBIGUOUS = "ambiguous"

    @classmethod
    def fallback(cls) -> "EffectState":
        """This version can't know whether the call took effect."""
        return cls.AMBIGUOUS


@dataclass(frozen=True, slots=True)
class EffectChange:
    """A row of the effect ledger. `args_hash` covers the tool id and its canonical parameters."""

    call_id: CallId
    tool_id: str
    args_hash: str
    effect: Effect
    state: EffectState


@dataclass(frozen=True, slots=True)
class UsageEvent:
    """One model call. `role` names the purpose of the call, such as `decision`.

    `cost_known` is false when the price is unknown; the cost is then 0.
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
    """Sets the final state of a signal."""

    signal_id: SignalId
    state: SignalState
    round: int | None = None


@dataclass(frozen=True, slots=True)
class Promotion:
    """Makes late signals the next turn, in the transaction that ends this one."""

    signal_ids: tuple[SignalId, ...]
    turn_id: TurnId
    text: str


@dataclass(frozen=True, slots=True)
class TurnClose:
    """Ends a turn. `seen_inbox` is the inbox_seq that the worker has folded; the commit is rejected if the database has
    a larger one."""

    status: TurnStatus
    outcome: Outcome | None
    error: Problem | None
    usage: TurnUsage
    seen_inbox: int
    title: str | None = None
    """Used only if the conversation has no title."""
    promote: Promotion | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction of a lease holder. `cursor` is the last event id issued so far.

    `requests` are approvals to ask a person for; `withdrawn` are no longer asked.
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
