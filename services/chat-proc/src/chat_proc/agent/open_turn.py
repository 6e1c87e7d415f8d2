"""The loop's interface to its turn: its blocks, its wire, its inbox, and the only way to write."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from chat_proc.agent.limits import Spent
from chat_proc.catalog.call_policy import Place
from chat_proc.catalog.tool import SourcePool
from chat_proc.timeline.files import AttachedMedia
from everturn.core.errors import Problem
from everturn.core.identity import Principal
from everturn.core.ids import ApprovalId, TurnId
from everturn.core.leases import Lease
from everturn.events.model import AnyEvent
from everturn.events.turn_view import build_file_view
from everturn.events.views import FileView
from everturn.files.model import Artifact
from everturn.timeline.blocks import Block, BlockDraft
from everturn.timeline.bodies import AttachmentTextBody
from everturn.timeline.turns import CutReason, Outcome, Signal
from everturn.turns.approvals import Approval, ApprovalRequest
from everturn.turns.commits import EffectChange, Promotion, SignalChange, UsageEvent


@dataclass(frozen=True, slots=True)
class Writing:
    """The content of one commit. `after` are events that report it and are sent once it is durable.

    `rewind` shows clients the committed state first, because it differs from what they were shown so far.
    """

    drafts: tuple[BlockDraft, ...] = ()
    effects: tuple[EffectChange, ...] = ()
    usage: tuple[UsageEvent, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    signals: tuple[SignalChange, ...] = ()
    requests: tuple[ApprovalRequest, ...] = ()
    withdrawn: tuple[ApprovalId, ...] = ()
    after: tuple[tuple[AnyEvent, int | None], ...] = ()
    rewind: bool = False

    def plus(self, other: "Writing") -> "Writing":
        return Writing(
            self.drafts + other.drafts,
            self.effects + other.effects,
            self.usage + other.usage,
            self.artifacts + other.artifacts,
            self.signals + other.signals,
            self.requests + other.requests,
            self.withdrawn + other.withdrawn,
            self.after + other.after,
            self.rewind or other.rewind,
        )


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How the loop ends a turn: with an outcome, or with an error. `writing` holds the last round's blocks.

    `cut_reason` says why the answer stops before its end.
    """

    outcome: Outcome | None
    error: Problem | None = None
    writing: Writing = field(default_factory=Writing)
    cut_reason: CutReason | None = None


class TurnActivity:
    """When a turn last made progress, and how many calls of models and tools it has open.

    An open call can last as long as its own limits allow. All other waits of a turn end within seconds: a turn without
    progress and without an open call is stuck, and its worker releases it.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._progress_at_s = monotonic()
        self._open_calls = 0

    def note_progress(self) -> None:
        self._progress_at_s = self._monotonic()

    @contextmanager
    def open_call(self) -> Generator[None]:
        """Wrap the call itself, not a wait for a task that should end it."""
        self._open_calls += 1
        try:
            yield
        finally:
            self._open_calls -= 1
            self.note_progress()

    def stalled_for_s(self) -> float:
        """Seconds without progress; 0 while a call is open."""
        return 0.0 if self._open_calls else self._monotonic() - self._progress_at_s


class Manifests(Protocol):
    """Stores what the turn's requests consisted of."""

    def keep(self, round_number: int, build: Callable[[], bytes]) -> None:
        """Store the result of `build` in the background; a failure affects nothing else."""
        ...


class TurnInbox(Protocol):
    """The signals sent to this turn."""

    async def load_unseen(self) -> tuple[Signal, ...]:
        """Signals that no commit has answered yet, oldest first."""
        ...

    async def wait_for_control(self) -> None:
        """Return once a steer or a cancel is pending that no commit has answered."""
        ...


class TurnApprovals(Protocol):
    """The state of the questions of turns."""

    async def load_deadline(self, *, timeout_s: float) -> datetime:
        """When a question asked now expires, by the database's clock."""
        ...

    async def load_of_turn(self, principal: Principal, turn_id: TurnId) -> tuple[Approval, ...]:
        """All questions that were asked in the turn."""
        ...


class TurnState(Protocol):
    """What can be read of a leased turn."""

    @property
    def lease(self) -> Lease:
        """Names the conversation and the principal."""
        ...

    @property
    def turn_id(self) -> TurnId: ...
    @property
    def time_zone(self) -> str | None:
        """The person's time zone, an IANA name; None if the client sent none."""
        ...

    @property
    def blocks(self) -> Sequence[Block]:
        """All blocks of the conversation, in order."""
        ...

    @property
    def turn_blocks(self) -> Sequence[Block]:
        """The blocks of this turn, in order."""
        ...

    @property
    def spent(self) -> Spent: ...
    @property
    def media(self) -> Mapping[str, bytes]:
        """Images and documents of this turn by sha256."""
        ...

    @property
    def pool(self) -> SourcePool:
        """The sources of the conversation."""
        ...

    @property
    def inbox(self) -> TurnInbox: ...
    @property
    def approvals(self) -> TurnApprovals: ...
    @property
    def manifests(self) -> Manifests: ...
    @property
    def activity(self) -> TurnActivity: ...
    @property
    def handover(self) -> bool:
        """Whether this worker is draining, so that the turn is to be handed over at the next round boundary."""
        ...


class OpenTurn(TurnState, Protocol):
    """A leased turn. Every write raises StaleFence when the lease is lost."""

    async def load_media(self, wanted: Sequence[AttachedMedia]) -> None:
        """Fetch these images and documents into `media`."""
        ...

    async def load_previews(self, artifacts: Sequence[Artifact]) -> Mapping[str, AttachmentTextBody]:
        """The beginnings of the text files among these, by ref; one that can't be read is left out."""
        ...

    def now(self) -> str:
        """ISO 8601 in UTC."""
        ...

    def lease_age_s(self) -> float:
        """Seconds since the lease was last known to be ours."""
        ...

    def emit(self, data: AnyEvent, round_number: int | None = None) -> None: ...

    def rewind(self) -> None:
        """Show clients the committed state instead of what was streamed since."""
        ...

    def book(self, usage: UsageEvent) -> None:
        """Book the cost of a model call that gave nothing to write; the next commit records it."""
        ...

    async def commit(self, writing: Writing) -> None:
        """Raises InboxMoved if a signal it applies was edited or withdrawn meanwhile; read the signals again."""
        ...

    async def close(self, end: TurnEnd, *, promote: Promotion | None = None) -> None:
        """Write the end. Also raises InboxMoved if a signal arrived that `load_unseen` has not returned."""
        ...


class LiveCall:
    """What a call of a round may do to its turn while it runs. Implements LiveTurn."""

    def __init__(self, turn: OpenTurn, round_number: int) -> None:
        self._turn = turn
        self._round = round_number

    @property
    def lease(self) -> Lease:
        return self._turn.lease

    def lease_age_s(self) -> float:
        return self._turn.lease_age_s()

    def emit(self, data: AnyEvent) -> None:
        self._turn.emit(data, self._round)

    def book(self, usage: UsageEvent) -> None:
        self._turn.book(usage)


def place_of(turn: TurnState) -> Place:
    """Where the turn's calls are made, for the policy that reviews them."""
    return Place(turn.lease.principal, turn.lease.conversation_id, turn.blocks)


def show_files(turn: OpenTurn, artifacts: Sequence[Artifact]) -> tuple[FileView, ...]:
    """Files of this turn as clients see them."""
    who = turn.lease.principal
    return tuple(build_file_view(item, tenant=who.tenant, project=who.project) for item in artifacts)
