"""A leased turn: its blocks, its event stream, its inbox, and the only way to write them.

It is the only owner of the positions in its conversation's timeline and event stream.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Final, TypeVar

import structlog

from chat_proc.catalog.call_policy import CallContext
from chat_proc.catalog.tool import SourcePool
from chat_proc.stream.emitter import Emitter
from chat_proc.turn.inbox import TurnInbox
from chat_proc.turn.manifests import ManifestWriter
from chat_proc.turn.meter import TurnMeter, add_usage, count_usage
from chat_proc.turn.sources import TurnSources
from chat_proc.turn.timeline_cache import CachedTimeline, Rendering
from chat_proc.turn.titling import TurnTitle, draft_gate
from everturn.core.clock import Clock, iso
from everturn.core.errors import Problem, Unavailable
from everturn.core.ids import ApprovalId, TurnId
from everturn.core.metrics import WORKFLOW_STEPS
from everturn.core.refs import round_ref
from everturn.core.retry import RetryPolicy
from everturn.core.threads import call_sized
from everturn.events.model import AnyEvent, ChatApproval, ChatDelta, ChatPhase, ChatStep, ConvStatus, ConvTitle
from everturn.events.turn_view import (
    TurnRecord,
    build_answer_events,
    build_file_view,
    build_lane_events,
    build_turn_view,
    try_build_terminal_event,
)
from everturn.events.views import FileView, TurnView
from everturn.feedback.model import Feedback
from everturn.files.model import Artifact
from everturn.skills.model import NO_SKILLS
from everturn.timeline.blocks import (
    GENESIS_HASH,
    Block,
    BlockDraft,
    BlockType,
    ExitBody,
    RangeSummaryBody,
    StepResultBody,
    chain_blocks,
)
from everturn.timeline.progress import TurnProgress, fold_progress
from everturn.timeline.turns import CutReason, Outcome, Turn, TurnStatus, TurnUsage
from everturn.turns.model import (
    Approval,
    ApprovalRequest,
    Claim,
    Commit,
    EffectChange,
    Lease,
    Promotion,
    SignalChange,
    TurnClose,
    TurnStart,
    UsageEvent,
)
from everturn.turns.ports import Approvals, InboxMoved, Timelines

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CommitContent:
    """What one commit writes. `after` are events that report it and are sent once it is durable.

    `rewind` shows clients the committed state first, because it differs from what they were shown so far.
    """

    drafts: tuple[BlockDraft, ...] = ()
    effects: tuple[EffectChange, ...] = ()
    usage: tuple[UsageEvent, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    signals: tuple[SignalChange, ...] = ()
    requests: tuple[ApprovalRequest, ...] = ()
    withdrawn: tuple[ApprovalId, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    after: tuple[tuple[AnyEvent, int | None], ...] = ()
    rewind: bool = False

    def plus(self, other: "CommitContent") -> "CommitContent":
        return CommitContent(
            self.drafts + other.drafts,
            self.effects + other.effects,
            self.usage + other.usage,
            self.artifacts + other.artifacts,
            self.signals + other.signals,
            self.requests + other.requests,
            self.withdrawn + other.withdrawn,
            self.feedback + other.feedback,
            self.after + other.after,
            self.rewind or other.rewind,
        )


NOTHING: Final = CommitContent()


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How the loop ends a turn: with an outcome, or with an error. `content` holds the last round's blocks.

    `cut_reason` says why the answer stops before its end.
    """

    outcome: Outcome | None
    error: Problem | None = None
    content: CommitContent = field(default_factory=CommitContent)
    cut_reason: CutReason | None = None


class TurnActivity:
    """When a turn last made progress, and which calls of models and tools it has open.

    An open call can last as long as its own limits allow. All other waits of a turn end within seconds: a turn without
    progress and without an open call is stuck: its worker stops it, and another one takes over when its lease expires.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._progress_at_s = monotonic()
        self._open_calls: list[tuple[str, float]] = []
        """What each is, and when it began."""

    def note_progress(self) -> None:
        self._progress_at_s = self._monotonic()

    @contextmanager
    def open_call(self, name: str) -> Generator[None]:
        """Wrap the call itself, not a wait for a task that should end it. `name` is for the log."""
        call = name, self._monotonic()
        self._open_calls.append(call)
        try:
            yield
        finally:
            self._open_calls.remove(call)
            self.note_progress()

    def describe(self) -> str:
        """The open calls with their ages and the time since the last progress, such as `react.read for 12 s; last
        progress 3 s ago`."""
        now_s = self._monotonic()
        calls = [f"{name} for {now_s - began_s:.0f} s" for name, began_s in self._open_calls]
        return "; ".join([*calls, f"last progress {now_s - self._progress_at_s:.0f} s ago"])

    def stalled_for_s(self) -> float:
        """Seconds without progress; 0 while a call is open."""
        return 0.0 if self._open_calls else self._monotonic() - self._progress_at_s


@dataclass(frozen=True, slots=True)
class Spent:
    """What a turn has used so far, including workers that died. `leased_s` are the seconds for which workers held it,
    without time in the queue, without a worker, or waiting for a person.
    """

    usage: TurnUsage
    leased_s: float


def status_of(end: TurnEnd) -> TurnStatus:
    """The row's status for this end."""
    if end.error is not None:
        return TurnStatus.FAILED
    return TurnStatus.CANCELLED if end.outcome is Outcome.CANCELLED else TurnStatus.COMPLETED


def build_status_after(status: TurnStatus, promote: Promotion | None = None) -> ConvStatus:
    """The conversation's status after a turn has ended with this status."""
    if promote is not None:
        return ConvStatus(state="queued", turn_id=promote.turn_id)
    return ConvStatus(state="error" if status is TurnStatus.FAILED else "idle")


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


_NOT_OF_LANES = frozenset({BlockType.COMPLETION, BlockType.WORKING_SUMMARY})
"""The answer of a lane is the result of its step."""


@dataclass(slots=True)
class _Position:
    """Where the turn's next blocks go, and what it has used; its lanes share it. `lock` is held during a commit."""

    next_seq: int
    last_hash: str
    usage: TurnUsage
    recorded: tuple[UsageEvent, ...] = ()
    """Usage that the next commit writes."""
    handover: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class LeasedTurn:
    """The turn that the loop reads and writes, as a whole or as one lane of it. Commits of lanes wait for each other;
    the call for a title, which runs beside, saves and announces the title by itself (`title`). Every write raises
    StaleFence when the lease is lost.

    `claimed_at_s` is the monotonic time before the claim was sent.
    """

    def __init__(
        self,
        claim: Claim,
        start: TurnStart,
        *,
        timelines: Timelines,
        emitter: Emitter,
        inbox: TurnInbox,
        clock: Clock,
        claimed_at_s: float,
        manifests: ManifestWriter,
        lease_age_s: Callable[[], float],
        approvals: Approvals,
        activity: TurnActivity,
        retries: RetryPolicy,
        rendering: Rendering | None = None,
    ) -> None:
        self._claim = claim
        self._timelines = timelines
        self._emitter = emitter
        self._clock = clock
        turn = start.turn
        self.step_id = ""
        """The id of the step whose lane this is; empty for the turn as a whole."""
        self._blocks = list(start.blocks)
        self.turn_start = _find_turn_start(self._blocks, turn.id)
        """The index of the turn's first block in `blocks`."""
        self.progress = self._turn_progress = fold_progress(self.turn_blocks)
        """What the blocks of this turn say, or those of its lane; only a commit changes it."""
        self.shown: Sequence[Block] = self._blocks
        """The blocks that requests show: all of the conversation, or those that a lane sees."""
        self.shown_start = self.turn_start
        """The index of the turn's first block in `shown`."""
        self._position = _Position(claim.next_seq, claim.last_hash or GENESIS_HASH, start.usage)
        self._retries = retries
        # The turn may have begun on another machine: its age comes from the database, not from a wall clock.
        self._began_s = clock.monotonic() - _find_age_s(turn)
        self._claimed_at_s = claimed_at_s
        self.lease_age_s = lease_age_s
        """Seconds since the lease was last known to be ours."""
        self._sources = TurnSources(start.sources, self._load_source_text)
        self._meter = TurnMeter(claim, turn, clock, is_new=self.turn_start == len(self._blocks))
        self.turn = turn
        self.fresh_feedback = start.feedback
        """Feedback that no block contained when the turn was loaded."""
        self.had_files = start.has_files
        """Whether there were files in the workspace when the turn was loaded."""
        self.skills_revision = start.skills_revision
        """Of the project's skills when the turn was loaded; 0 without any."""
        self.skills = NO_SKILLS
        """Those of the bundle and of the project with which the turn began."""
        self.call_context = CallContext(claim.lease.principal, claim.lease.conversation_id, self._blocks)
        """Where the turn's calls are made, for the policy that reviews them."""
        self.tool_model_calls = Counter[str]()
        """Calls of models that its tools have made on this worker, by function."""
        self.inbox = inbox
        self._approvals = approvals
        self.activity = activity
        self.manifests = manifests
        self.rendering = rendering
        """The rendering of a leading part of `shown`; None before the first request and while more are being
        rendered."""
        self.title = TurnTitle(claim.lease, turn, timelines, retries, self.emit)
        emitter.show_committed(self._build_view)

    @property
    def lease(self) -> Lease:
        """Names the conversation and the principal."""
        return self._claim.lease

    @property
    def turn_id(self) -> TurnId:
        return self.turn.id

    @property
    def handover(self) -> bool:
        """Whether the turn is to be handed over before its next model call, or before calls that another worker left:
        this worker is draining, or has claimed the turn only to cancel it."""
        return self._position.handover

    @handover.setter
    def handover(self, value: bool) -> None:
        self._position.handover = value

    @property
    def commit_lock(self) -> asyncio.Lock:
        """While it is held, no commit is under way, so tasks that commit can be cancelled."""
        return self._position.lock

    def open_lane(self, step_id: str, shown: Sequence[Block]) -> "LeasedTurn":
        """The turn as one of its steps sees it: it has progress of its own, and its requests show the blocks `shown`
        and those that it commits. Its texts are not streamed, because those of other lanes grow at the same time:
        clients get each in one piece when it is committed."""
        lane = copy(self)
        lane.step_id, lane.progress = step_id, self.progress.lanes.setdefault(step_id, TurnProgress())
        lane.shown, lane.shown_start, lane.rendering = list(shown), 0, None
        return lane

    @property
    def time_zone(self) -> str | None:
        """The person's time zone, an IANA name; None if the client sent none."""
        return self.turn.request.time_zone

    @property
    def blocks(self) -> Sequence[Block]:
        """All blocks of the conversation, in order."""
        return self._blocks

    @property
    def turn_blocks(self) -> Sequence[Block]:
        """The blocks of this turn, in order."""
        return self._blocks[self.turn_start :]

    def build_cached_timeline(self) -> CachedTimeline | None:
        """The timeline to cache for the next turn. None if this turn wrote a history summary, because the next turn
        then loads fewer blocks."""
        if any(
            isinstance(block.body, RangeSummaryBody) and block.body.scope == "history" for block in self.turn_blocks
        ):
            return None
        return CachedTimeline(self._position.last_hash, tuple(self._blocks), self.rendering)

    @property
    def own_blocks(self) -> Sequence[Block]:
        """The blocks of this lane; of a turn without lanes, all of its blocks."""
        if not self.step_id:
            return self.turn_blocks
        return [block for block in self.turn_blocks if self._turn_progress.find_step(block.round) == self.step_id]

    @property
    def spent(self) -> Spent:
        leased_s = self.turn.leased_s + self._clock.monotonic() - self._claimed_at_s
        return Spent(add_usage(self._position.usage, self._position.recorded), leased_s)

    def _elapsed_s(self) -> float:
        return self._clock.monotonic() - self._began_s

    @property
    def pool(self) -> SourcePool:
        """The sources of the conversation."""
        return self._sources

    def show_files(self, artifacts: Sequence[Artifact]) -> tuple[FileView, ...]:
        """Files of this turn as clients see them."""
        who = self.lease.principal
        return tuple(build_file_view(item, tenant=who.tenant, project=who.project) for item in artifacts)

    def now(self) -> str:
        """ISO 8601 in UTC."""
        return iso(self._clock.now())

    def emit(self, data: AnyEvent, round_number: int | None = None) -> None:
        self.activity.note_progress()
        if self.step_id:
            if _is_shown_by_blocks(data):
                return
            data = _name_step(data, self.step_id)
        self._meter.note_event(data)
        self._emitter.emit(data, round_number)

    def emit_waiting(self) -> None:
        """Show that the turn waits for a person, if it does. While it waits for a call of its own, it is shown as
        running."""
        if any(question.outcome is None for question in self._turn_progress.questions.values()):
            self.emit(ConvStatus(state="waiting", turn_id=self.turn_id))

    def rewind(self) -> None:
        """Show clients the committed state instead of what was streamed since. A lane streams nothing."""
        if not self.step_id:
            self._emitter.rewind()

    def record_usage(self, usage: UsageEvent) -> None:
        """Record the usage of a model call; the next commit writes it."""
        self._position.recorded += (usage,)

    async def commit(self, content: CommitContent) -> None:
        """Raises InboxMoved if a signal it applies was edited or withdrawn meanwhile; read the signals again."""
        await self.commit_built(lambda: content)

    async def commit_built(self, build: Callable[[], CommitContent | None]) -> None:
        """Commit what `build` returns once no other commit is under way, so that it can depend on all blocks before
        it; None commits nothing. Raises InboxMoved like `commit`."""
        async with self._position.lock:
            built = build()
            if built is None:
                return
            content = self._adapt_to_lane(built) if self.step_id else built
            blocks = self._chain(self._with_gate(self._sources.accept_drafts(content.drafts), self.title.given))
            if blocks:
                content = CommitContent(usage=self._position.recorded).plus(content)
            else:
                # This commit could be written twice if its answer was lost: the next one with blocks writes the usage.
                self._position.recorded += content.usage
                content = replace(content, usage=())
            self._emit_lane_events(blocks)
            commit = self._build_commit(blocks, content)
            await self._write(commit)
            self._apply(commit, content)
            if self.step_id:
                self.shown = [*self.shown, *blocks]
            self._emit_committed(content, blocks)

    def _emit_lane_events(self, blocks: Sequence[Block]) -> None:
        """Show what new blocks say about the model calls of lanes: all blocks of a lane, and the results of steps that
        end together with their turn or by a signal to it. Before the commit, whose cursor covers these events: a client
        with an older snapshot adds them, others skip them."""
        if self.step_id:
            lanes = {self.step_id: blocks}
        else:
            lanes = {block.body.step: [block] for block in blocks if isinstance(block.body, StepResultBody)}
        for step_id, own in lanes.items():
            sealed_round = self._turn_progress.lanes[step_id].sealed_round
            for data, round_number in build_lane_events(own, sealed_round=sealed_round):
                self._meter.note_event(data)
                self._emitter.emit(_name_step(data, step_id), round_number)

    def _adapt_to_lane(self, content: CommitContent) -> CommitContent:
        return replace(
            content,
            drafts=tuple(draft for draft in content.drafts if draft.type not in _NOT_OF_LANES),
            after=tuple((_name_step(data, self.step_id), round_number) for data, round_number in content.after),
            rewind=False,
        )

    async def close(self, end: TurnEnd, *, promote: Promotion | None = None) -> None:
        """Write the end, then emit the answer's events, the title, the terminal event and the conversation's status.

        Also raises InboxMoved if a signal arrived that `inbox.load_unseen` has not returned.
        """
        present, title = await self.title.settle()
        for used in self.title.take_usage():
            self.record_usage(used)
        content = CommitContent(usage=self._position.recorded).plus(end.content)
        usage = add_usage(self._position.usage, content.usage)
        rounds = max((draft.round for draft in content.drafts), default=0)
        exit_draft = draft_exit(
            end,
            self.turn_id,
            rounds=max(rounds, self.progress.last_round),
            usage=usage,
            elapsed_ms=int(self._elapsed_s() * 1000),
            now=self.now(),
        )
        blocks = self._chain((*self._with_gate(self._sources.accept_drafts(content.drafts), present), exit_draft))
        self._emit_lane_events(blocks)
        close = TurnClose(
            status=status_of(end),
            outcome=end.outcome,
            error=end.error,
            usage=usage,
            seen_inbox=self.inbox.seen_seq,
            title=title,
            promote=promote,
        )
        commit = self._build_commit(blocks, content, close)
        await self._write(commit)
        self.turn = replace(self.turn, status=status_of(end))
        self._meter.note_end(end.outcome, waited_s=self.progress.count_waited_s())
        self._apply(commit, content, promote)
        self._emit_committed(content, blocks)
        if title is not None and title != self.title.given:
            # The model's title, or a person's, can have been saved just before the commit: then the commit kept it.
            self.emit(ConvTitle(title=await self._load_kept_title(title)))
        if terminal := try_build_terminal_event(await self._build_view()):
            self.emit(terminal)
        self.emit(build_status_after(self.turn.status, promote))

    async def _load_kept_title(self, title: str) -> str:
        """The title of the conversation; `title`, which was just written, if it can't be read: the end is announced in
        any case."""
        try:
            return await self.title.load()
        except Unavailable as error:
            _log.warning("Could not read the title", turn_id=self.turn_id, error=str(error))
            return title

    def _with_gate(self, drafts: tuple[BlockDraft, ...], title: str) -> tuple[BlockDraft, ...]:
        """Insert the title block after the turn's header, if the title is known and no block holds it yet."""
        if self._turn_progress.is_titled or not title:
            return drafts
        start = 1 if drafts and drafts[0].type is BlockType.TURN_HEADER else 0
        at = drafts[0].ts if drafts else self.now()
        return (*drafts[:start], draft_gate(self.turn, title, at), *drafts[start:])

    def _build_commit(
        self, blocks: tuple[Block, ...], content: CommitContent, close: TurnClose | None = None
    ) -> Commit:
        return Commit(
            turn_id=self.turn_id,
            blocks=blocks,
            cursor=self._emitter.seal(),
            effects=content.effects,
            usage=content.usage,
            artifacts=content.artifacts,
            signals=content.signals,
            requests=content.requests,
            withdrawn=content.withdrawn,
            feedback=content.feedback,
            sources=self._sources.pending(),
            close=close,
        )

    async def _write(self, commit: Commit) -> None:
        try:
            inbox_seq = await self._retries.call(lambda: self._timelines.commit(self._claim.lease, commit))
        except InboxMoved as moved:
            self.inbox.notice_seq(moved.inbox_seq)
            self.inbox.ring()
            raise
        self.activity.note_progress()
        self._sources.settle(commit.sources)
        self.inbox.notice_seq(inbox_seq)

    async def retry(self, make: Callable[[], Awaitable[_T]]) -> _T:
        """The result of a call that reads from the database, which may just restart. Raises Unavailable."""
        return await self._retries.call(make)

    async def load_approval_deadline(self, *, timeout_s: float) -> datetime:
        """When a question asked now expires, by the database's clock."""
        return await self.retry(lambda: self._approvals.load_deadline(timeout_s=timeout_s))

    async def load_approvals(self) -> tuple[Approval, ...]:
        """All approvals of the turn, oldest first."""
        return await self.retry(lambda: self._approvals.load_of_turn(self.lease.principal, self.turn_id))

    async def _load_source_text(self, sid: int) -> str:
        where = self.lease.principal, self.lease.conversation_id
        return await self.retry(lambda: self._timelines.load_source_text(*where, sid))

    async def _build_view(self) -> TurnView:
        """The turn's state as it is now."""
        record = TurnRecord(self.turn, tuple(self.turn_blocks), self.inbox.signals)
        who = self.lease.principal
        build = partial(build_turn_view, record, tenant=who.tenant, project=who.project)
        return await call_sized(sum(len(block.body_json) for block in record.blocks), build)

    def _chain(self, drafts: tuple[BlockDraft, ...]) -> tuple[Block, ...]:
        """Times never go back on a timeline, although the clock of the worker before may have been ahead, and others
        may have committed since these blocks were drafted."""
        last_ts = self._blocks[-1].ts if self._blocks else ""
        times = tuple(accumulate((draft.ts for draft in drafts), max, initial=last_ts))[1:]
        drafts = tuple(replace(draft, ts=ts) for draft, ts in zip(drafts, times, strict=True))
        return chain_blocks(drafts, next_seq=self._position.next_seq, last_hash=self._position.last_hash)

    def _apply(self, commit: Commit, content: CommitContent, promote: Promotion | None = None) -> None:
        self._blocks.extend(commit.blocks)
        self._turn_progress.extend(commit.blocks)
        position = self._position
        if commit.blocks:
            position.next_seq, position.last_hash = commit.blocks[-1].seq + 1, commit.blocks[-1].hash
        position.usage = add_usage(position.usage, content.usage)
        # What was recorded while the commit was written is left for the next one.
        position.recorded = tuple(
            each for each in position.recorded if not any(each is written for written in content.usage)
        )
        self.inbox.settle(content.signals)
        if promote is not None:
            self.inbox.promote(promote)
        self._emitter.mark_committed(commit.cursor)

    def _emit_committed(self, content: CommitContent, blocks: tuple[Block, ...]) -> None:
        count_usage(content.usage)
        for block in blocks:
            if isinstance(block.body, StepResultBody):
                WORKFLOW_STEPS.labels(block.body.status).inc()
        if content.rewind:
            self._emitter.rewind()
        for data in build_answer_events(blocks):
            self._emitter.emit(data, last_round(blocks), is_committed=True)
        for data, round_number in content.after:
            self._emitter.emit(data, round_number, is_committed=True)


def _name_step(data: AnyEvent, step_id: str) -> AnyEvent:
    """The same event with the step that it belongs to."""
    has_step = isinstance(data, ChatStep | ChatPhase | ChatApproval)
    return data.model_copy(update={"step_id": step_id}) if has_step else data


def _is_shown_by_blocks(data: AnyEvent) -> bool:
    """Whether clients of a lane are shown this once its blocks are committed."""
    return isinstance(data, ChatDelta) or (
        isinstance(data, ChatPhase) and data.phase in ("model_called", "model_thought")
    )


def _find_turn_start(blocks: Sequence[Block], turn_id: TurnId) -> int:
    """The blocks of an open turn are the last ones."""
    start = len(blocks)
    while start and blocks[start - 1].turn_id == turn_id:
        start -= 1
    return start


def _find_age_s(turn: Turn) -> float:
    if turn.started_at is None or turn.read_at is None:
        return 0.0
    return max(0.0, (turn.read_at - turn.started_at).total_seconds())


def last_round(turn_blocks: Sequence[Block]) -> int:
    """The number of the turn's last round; 0 before the first."""
    return max((block.round for block in turn_blocks), default=0)
