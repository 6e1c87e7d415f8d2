"""The values of a turn's execution: the lease that allows a worker to write, approvals, and commits.

A lease is the right of one worker to write one conversation, numbered by a fence that only grows. An approval is the
question to a person before a tool call is made, with its answer. A commit has blocks, and all rows that must change in
the same transaction.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any

from everturn.core.errors import Problem
from everturn.core.identity import Lane, Principal
from everturn.core.ids import ApprovalId, CallId, ConversationId, SignalId, TurnId
from everturn.core.open_values import OpenEnum
from everturn.events.cursor import EventCursor
from everturn.feedback.model import Feedback
from everturn.files.model import Artifact
from everturn.timeline.blocks import Block
from everturn.timeline.sources import Source, SourceChange
from everturn.timeline.turns import Outcome, SignalState, Turn, TurnStatus, TurnUsage


@dataclass(frozen=True, slots=True)
class Lease:
    """Held by `owner` (a worker's id) until the database says otherwise."""

    conversation_id: ConversationId
    principal: Principal
    owner: str
    fence: int


@dataclass(frozen=True, slots=True)
class TurnStart:
    """What a worker needs to begin a turn, or to resume it."""

    turn: Turn
    blocks: tuple[Block, ...]
    """The conversation's, as Timelines.load_recent_blocks returns them."""
    usage: TurnUsage
    """The sum of the turn's usage events so far."""
    sources: tuple[Source, ...]
    """The conversation's, by `sid`, without their full texts."""
    feedback: tuple[Feedback, ...]
    """On turns of this conversation, if no block contains it yet; oldest first."""
    has_signals: bool
    """Whether signals of the turn have arrived, answered or not."""
    has_files: bool
    """Whether turns have left files in the workspace, removed or not."""
    may_have_next: bool
    """Whether another turn of the tenant may be waiting for the place in the queue that this one has left."""
    skills_revision: int = 0
    """Of the skills that were uploaded to the project; 0 if there never were any."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease just claimed, and the state of its conversation.

    `turn_id` is the open turn to run. If it is None, `unannounced` can name ended turns whose terminal event has not
    been published. `attempt` counts takeovers since the turn's last commit.
    """

    lease: Lease
    turn_id: TurnId | None
    attempt: int
    next_seq: int
    last_hash: str
    cursor: EventCursor
    inbox_seq: int
    unannounced: tuple[TurnId, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimBounds:
    """How many turns can run: of one user and of one tenant while others wait, and in all workers together.

    `slots` and `extra` are the ordinary and the extra slots of all workers.
    """

    user_max: int
    tenant_max: int
    slots: int
    extra: int


class SlotKind(Enum):
    """The slot for which a worker claims a turn. It uses an extra slot only when all its ordinary slots are
    occupied."""

    ORDINARY = "ordinary"
    RESERVED = "reserved"
    """An extra slot, for a user without a running turn."""
    LENT = "lent"
    """An extra slot that replaces an ordinary one whose turn makes no progress."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The turn was not claimed, because its user or tenant exceeds a bound and the turn of `to` waits.

    `lane` is the lane of the turn that was not claimed; its doorbell must be rung again there.
    """

    to: ConversationId
    lane: Lane


class ApprovalState(OpenEnum):
    """PENDING can become any of the others, and those are final. EXPIRED had no answer in time. WITHDRAWN is no longer
    asked, because the person sent something else or the turn ended."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"

    @classmethod
    def fallback(cls) -> "ApprovalState":
        """A call is made only after an answer that this version understands."""
        return cls.WITHDRAWN


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question to a person. `args_hash` covers the tool and its parameters; the answer applies to exactly these."""

    id: ApprovalId
    call_id: CallId
    tool_id: str
    args_hash: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Approval:
    """The stored state of a question; `signal_id` and `reason` are those of the person's answer."""

    id: ApprovalId
    call_id: CallId
    args_hash: str
    state: ApprovalState
    signal_id: SignalId | None = None
    reason: str = ""


def approval_id_of(call_id: CallId) -> ApprovalId:
    """The only approval that a call can need, so asking again reuses the same one."""
    return ApprovalId(f"appr_{call_id.partition('_')[2]}")


def hash_arguments(tool_id: str, params: dict[str, Any]) -> str:
    """SHA-256 in hex over the tool and its canonical parameters."""
    canonical = json.dumps([tool_id, params], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


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

    `requests` are approvals to ask a person for; `withdrawn` are no longer asked. `feedback` is added to the turn.
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
    feedback: tuple[Feedback, ...] = ()
    close: TurnClose | None = None
