"""Processes one claim: opens or resumes the turn, runs the loop, announces the end, releases the lease."""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Final

import structlog
from structlog.contextvars import bound_contextvars

from chat_proc.agent.boundaries import TurnBoundaries
from chat_proc.agent.closing import build_crash_end
from chat_proc.agent.dag.loop import build_loop
from chat_proc.agent.kit import BundleKit, LoopDependencies, TurnKit, TurnKits
from chat_proc.agent.limits import round_limit
from chat_proc.agent.loop import HandedOver, LoopResult, Parked
from chat_proc.agent.opening import add_prune_notice, draft_opening
from chat_proc.agent.signal_folding import through_last_end
from chat_proc.agent.tool_selection import select_tools
from chat_proc.bundles.versions import BundleUnavailable
from chat_proc.skills.projects import ProjectSkills
from chat_proc.stream.emitter import Emitter, EventNumbering
from chat_proc.timeline.pruning import PrunePolicy
from chat_proc.turn.inbox import TurnInbox
from chat_proc.turn.leased import LeasedTurn, TurnActivity, TurnEnd
from chat_proc.turn.manifests import ManifestBuilder, ManifestWriter, StoredPreambles
from chat_proc.turn.timeline_cache import CachedTimeline, Rendering, TimelineCache
from chat_proc.turn.titling import run_title_call
from chat_proc.worker.announcing import Announcer
from chat_proc.worker.ringing import Ringer
from everturn.core.cancellation import Stopped, run_until
from everturn.core.clock import Clock
from everturn.core.errors import DatabaseFault, EverturnError, NotFound, StaleFence, Unavailable, problem
from everturn.core.ids import TurnId
from everturn.core.loops import guarded
from everturn.core.metrics import ANNOUNCEMENTS_FAILED, LEASES_ERASED, TURN_CRASHES
from everturn.core.retry import RetryPolicy
from everturn.core.tracing import Span, SpanLinks, Tracing, build_turn_context, try_parse_context
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.model import ConvStatus
from everturn.events.stream import EventWriter
from everturn.events.turn_view import build_signal_event, build_signal_view, build_start_event
from everturn.files.ports import Artifacts
from everturn.lifecycle.erasure import delete_erased_objects
from everturn.skills.model import NO_SKILLS
from everturn.timeline.blocks import TurnHeaderBody
from everturn.timeline.turns import Signal, Turn
from everturn.turns.model import Claim, Lease, TurnStart
from everturn.turns.ports import Approvals, Leases, Timelines

_log = structlog.get_logger(__name__)

AGENT: Final = "everturn"

MAX_ATTEMPTS = 3
"""Takeovers without progress after which a turn is given up."""
MAX_CLOSINGS = 3
"""Attempts to end a given-up turn using its blocks. After that the blocks may be unreadable, and it is ended without
them."""
MAX_ENDS_ANNOUNCED = 10
"""Ends of earlier turns announced under one claim; the next claim announces further ones."""
DEFECTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    DatabaseFault,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Raised by defects of our own code, unlike failures of dependencies."""
CLEAR_S = 10.0
"""Time limit of each step in which a turn that lost its lease finds and removes the rest of an erased conversation."""
WIND_UP_S = 60.0
"""Time limit for a turn that lost its lease to end: two grace periods of its tasks, and twice CLEAR_S, with slack."""
FLUSH_S = 5.0
"""How long the end of a turn waits for its events to be sent before announcing it is left to the sweeper."""


@contextmanager
def open_turn_span(tracing: Tracing, claim: Claim, turn: Turn, *, is_resumed: bool) -> Generator[Span]:
    """The span of this claim: a child of the request and, if the turn is resumed, linked to the previous claim.

    Its ids are computed from turn and fence, so a link also works if a killed worker never exported its span.
    """
    request = try_parse_context(turn.request.trace)
    own = build_turn_context(turn.id, claim.lease.fence, request)
    before = build_turn_context(turn.id, claim.lease.fence - 1, request) if is_resumed else None
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": AGENT,
        "gen_ai.conversation.id": turn.conversation_id,
        "everturn.turn.id": turn.id,
        "everturn.turn.attempt": claim.attempt,
        "everturn.tenant": claim.lease.principal.tenant,
    }
    links = SpanLinks(parent=request, own=own, link=before)
    with (
        tracing.span(f"invoke_agent {AGENT}", attributes, kind="internal", links=links) as span,
        bound_contextvars(trace_id=own.trace_id),
    ):
        yield span


async def run_in_span(
    tracing: Tracing, claim: Claim, turn: LeasedTurn, work: Coroutine[Any, Any, LoopResult]
) -> LoopResult:
    """Run the work in a span; the span and a log line report its outcome."""
    is_resumed = bool(turn.turn_blocks) or claim.attempt > 0
    with open_turn_span(tracing, claim, turn.turn, is_resumed=is_resumed) as span:
        result = await work
        _log.info("Stopped running a turn", outcome=record_outcome(span, result), attempt=claim.attempt)
        return result


def record_outcome(span: Span, result: LoopResult) -> str:
    """The outcome as one word, also noted on the span."""
    match result:
        case HandedOver():
            outcome = "handed_over"
        case Parked():
            outcome = "parked"
        case TurnEnd(outcome=None, error=error):
            outcome = "failed"
            span.fail(error.type if error is not None else outcome)
        case TurnEnd(outcome=reached):
            outcome = str(reached)
    span.note({"everturn.turn.outcome": outcome})
    return outcome


@dataclass(frozen=True, slots=True)
class RunnerDependencies:
    """The parts that all turns of a worker share."""

    leases: Leases
    timelines: Timelines
    writer: EventWriter
    artifacts: Artifacts
    approvals: Approvals
    kits: TurnKits
    loop: LoopDependencies
    announcer: Announcer
    ringer: Ringer
    clock: Clock
    retries: RetryPolicy
    pruning: PrunePolicy = field(default_factory=PrunePolicy)
    preambles: StoredPreambles = field(default_factory=StoredPreambles)
    manifests: ManifestBuilder = field(default_factory=ManifestBuilder)
    timeline_cache: TimelineCache = field(default_factory=TimelineCache)
    project_skills: ProjectSkills = field(default_factory=ProjectSkills)


class _Result(Enum):
    """How the work on a turn stopped. OPEN and POSTPONED return it to the queue, POSTPONED without an own doorbell: the
    sweeper rings after some seconds. WAITING parks it until a person answers."""

    ENDED = "ended"
    OPEN = "open"
    POSTPONED = "postponed"
    WAITING = "waiting"
    LEASE_LOST = "lease_lost"
    DATABASE_UNAVAILABLE = "database_unavailable"


class _StopReason(Enum):
    """Why a turn's work was stopped from outside."""

    LEASE_LOST = "lease_lost"
    DRAINING = "draining"


class TurnRunner:
    """Processes one claim. Owned by the claim loop; the heartbeat and inbox notifications wake it.

    `requested_at_s` is the monotonic time before the claim was made.
    """

    def __init__(self, parts: RunnerDependencies, claim: Claim, requested_at_s: float) -> None:
        self._parts = parts
        self._claim = claim
        self._stop = asyncio.Event()
        self._lost = asyncio.Event()
        self._stop_reason: _StopReason | None = None
        self._handover = False
        self._inbox: TurnInbox | None = None
        self._turn: LeasedTurn | None = None
        self._releasing = False
        self._confirmed_at = self._held_at = requested_at_s
        self._numbering: EventNumbering | None = None
        self._activity = TurnActivity(parts.clock.monotonic)
        self._version: BundleKit = parts.kits.base
        self._project_skills = NO_SKILLS
        self._began = False
        self._left_behind = False
        self._announced: EventCursor | None = None
        """The last event id, once the turn's end is published."""

    @property
    def fence(self) -> int:
        return self._claim.lease.fence

    @property
    def is_releasing(self) -> bool:
        """Whether it is releasing its lease itself, so that a missing lease is no loss."""
        return self._releasing

    @property
    def left_behind(self) -> bool:
        """Whether some of its work ignored cancellation and still runs, so that its lease has to expire."""
        return self._left_behind

    @property
    def idle_s(self) -> float:
        """Seconds since the turn last sent an event to its clients; a program or a model has been silent since then."""
        return self._parts.clock.monotonic() - (self._numbering.last_at_s if self._numbering else self._held_at)

    @property
    def _blocks_unreadable(self) -> bool:
        return self._claim.attempt >= MAX_ATTEMPTS + MAX_CLOSINGS

    def notice_inbox(self, inbox_seq: int) -> None:
        if self._inbox is not None:
            self._inbox.notice_seq(inbox_seq)

    def confirm_lease(self, at_s: float) -> None:
        """The lease was still ours at this moment of the monotonic clock."""
        self._confirmed_at = at_s

    def stalled_for_s(self) -> float:
        """Seconds without progress while no call of a model, a tool or a person is open."""
        return self._activity.stalled_for_s() if self._began else 0.0

    def describe(self) -> str:
        """What it does now, for the log."""
        doing = self._activity.describe() if self._began else "waits to begin"
        return f"{self._claim.turn_id or 'earlier ends'}: {doing}"

    def ring_inbox(self) -> None:
        if self._inbox is not None:
            self._inbox.ring()

    def request_handover(self) -> None:
        self._handover = True
        if self._turn is not None:
            self._turn.handover = True

    def lose_lease(self) -> None:
        """Stop at once and write nothing more."""
        self._lost.set()
        self._end_work(_StopReason.LEASE_LOST)

    def interrupt(self) -> None:
        self._end_work(_StopReason.DRAINING)

    async def wait_overdue(self) -> None:
        """Return when the turn has lost its lease and is overdue to end."""
        await self._lost.wait()
        await asyncio.sleep(WIND_UP_S)

    async def run(self) -> bool:
        """Return whether the turn has ended; False if its conversation was erased.

        Raises StaleFence when the lease is lost, and Unavailable when the database did not answer in time. Nothing more
        is written after that, unless work was `left_behind`.
        """
        self._began = True
        self._activity.note_progress()
        result, all_announced = _Result.ENDED, True
        try:
            cursor, all_announced = await self._announce_earlier_ends(await self._find_cursor())
            if self._claim.turn_id is not None:
                result = await self._run_turn(self._claim.turn_id, cursor)
            if result is _Result.DATABASE_UNAVAILABLE:
                raise Unavailable("The database did not answer in time.")
            if result is _Result.LEASE_LOST:
                raise StaleFence(self._claim.lease.conversation_id)
            return await self._release(result, all_announced=all_announced)
        except StaleFence:
            if await _clear_erased(self._parts, self._claim.lease):
                self._parts.timeline_cache.discard(self._claim.lease.conversation_id)
                return False
            raise

    async def _release(self, result: "_Result", *, all_announced: bool) -> bool:
        """Park the turn, or release the lease. Return whether the turn has ended."""
        lease, turn_id = self._claim.lease, self._claim.turn_id
        self._releasing = True
        if result is _Result.WAITING and await self._try_park():
            return False
        if turn_id is not None and self._announced is not None:
            await self._parts.announcer.release_announced(lease, turn_id, self._announced)
            self._parts.loop.failpoints.hit("turn.announced")
            return True
        # An end that can't be announced is left to the sweeper, which backs off; our own doorbell would not.
        has_progress = all_announced or turn_id is not None
        requeue = result in (_Result.OPEN, _Result.POSTPONED, _Result.WAITING)
        ring_own = has_progress and result is not _Result.POSTPONED
        await self._parts.announcer.release(lease, requeue=requeue, ring_own=ring_own)
        return result is _Result.ENDED

    async def _try_park(self) -> bool:
        """Return False if the turn need not wait after all: it returns to the queue, and the next worker checks."""
        return await self._parts.retries.call(lambda: self._parts.approvals.try_park(self._claim.lease))

    async def _announce_earlier_ends(self, cursor: EventCursor) -> tuple[EventCursor, bool]:
        """Return the new cursor, and whether all ends were announced. Raises StaleFence."""
        announced = True
        for ended_id in self._ends_to_announce():
            cursor, sent = await self._try_announce(ended_id, cursor)
            self._activity.note_progress()
            announced = announced and sent
        return cursor, announced

    def _ends_to_announce(self) -> tuple[TurnId, ...]:
        """Unannounced ends. If a worker died during this claim's turn, announcing may have killed it: then none, they
        wait."""
        if self._claim.turn_id is None or self._claim.attempt == 0:
            return self._claim.unannounced[:MAX_ENDS_ANNOUNCED]
        return ()

    async def _try_announce(self, ended_id: TurnId, cursor: EventCursor) -> tuple[EventCursor, bool]:
        """Return the new cursor, and whether it succeeded: an ended turn that can't be announced never blocks an open
        one."""
        try:
            with guarded("announcement", passing=(StaleFence, NotFound), turn_id=ended_id):
                return await self._parts.announcer.announce_ended(self._claim, ended_id, cursor)
        except NotFound as error:
            # As in _load_start: only an erasure removes the rows of an ended turn.
            raise StaleFence(self._claim.lease.conversation_id) from error
        ANNOUNCEMENTS_FAILED.inc()
        return max(cursor, await self._find_cursor()), False

    async def _run_turn(self, turn_id: TurnId, cursor: EventCursor) -> "_Result":
        lease = self._claim.lease
        numbering = self._numbering = EventNumbering(
            self._parts.clock, conversation_id=lease.conversation_id, turn_id=turn_id, fence=lease.fence, after=cursor
        )
        emitter = Emitter(self._parts.writer, numbering, lease.principal)
        manifests = ManifestWriter(
            self._parts.loop.objects,
            conversation_id=lease.conversation_id,
            turn_id=turn_id,
            preambles=self._parts.preambles,
            builder=self._parts.manifests,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(emitter.run())
            tasks.create_task(manifests.run())
            watching = tasks.create_task(self._watch(emitter))
            try:
                result = await self._run_work(turn_id, emitter, manifests, tasks)
            finally:
                watching.cancel()
                emitter.close()
                manifests.close()
        if result is _Result.ENDED:
            self._cache_timeline()
        return result

    def _cache_timeline(self) -> None:
        if self._turn is None or self._blocks_unreadable:
            return
        conversation_id = self._claim.lease.conversation_id
        # No error may prevent the release of the lease.
        with guarded("cache_timeline", conversation_id=conversation_id):
            if (timeline := self._turn.build_cached_timeline()) is not None:
                self._parts.timeline_cache.put(conversation_id, timeline)

    async def _run_work(
        self, turn_id: TurnId, emitter: Emitter, manifests: ManifestWriter, tasks: asyncio.TaskGroup
    ) -> "_Result":
        """Errors are caught here, because a task group would wrap them."""
        try:
            if self._lost.is_set():
                raise StaleFence()
            ran = await run_until(self._stop.wait(), self._work(turn_id, emitter, manifests, tasks))
            # Work that ignores its cancellation may write until the lease has expired, so the lease is not released.
            self._left_behind = isinstance(ran, Stopped) and ran.left_behind
            if self._stop_reason is _StopReason.LEASE_LOST or self._left_behind:
                raise StaleFence()
            if isinstance(ran, Stopped) or isinstance(ran.value, HandedOver | Parked):
                is_flushed = await self._flush(emitter)
                parked = not isinstance(ran, Stopped) and isinstance(ran.value, Parked)
                if not isinstance(ran, Stopped) and isinstance(ran.value, HandedOver) and ran.value.is_postponed:
                    return _Result.POSTPONED
                # Nobody may have seen the question of a turn whose events were not sent: the next worker shows it.
                return _Result.WAITING if parked and is_flushed else _Result.OPEN
            await self._announce(turn_id, emitter)
            return _Result.ENDED
        except (StaleFence, Unavailable) as error:
            emitter.abandon()
            manifests.abandon()
            # Cancelled work may fail in another way; if an erasure removed the lease, the objects must still be
            # deleted.
            if isinstance(error, StaleFence) or self._stop_reason is _StopReason.LEASE_LOST:
                return _Result.LEASE_LOST
            _log.warning("Turn was interrupted", error=str(error))
            return _Result.DATABASE_UNAVAILABLE

    async def _flush(self, emitter: Emitter) -> bool:
        """Whether all events were sent. Raises StaleFence if the stream has a newer fence, as after an erasure."""
        is_flushed = await emitter.flush(FLUSH_S)
        if emitter.stale.is_set():
            raise StaleFence(self._claim.lease.conversation_id)
        return is_flushed

    async def _watch(self, emitter: Emitter) -> None:
        await emitter.stale.wait()
        self.lose_lease()

    def _end_work(self, reason: _StopReason) -> None:
        # A lost lease outweighs a drain: nothing may be written then.
        if self._stop_reason is not _StopReason.LEASE_LOST:
            self._stop_reason = reason
        self._stop.set()

    async def _find_cursor(self) -> EventCursor:
        """The last known event id of this conversation."""
        lease, cursor = self._claim.lease, self._claim.cursor
        try:
            last = await self._parts.writer.load_last(lease.conversation_id)
        except Unavailable as error:
            # Clients that saw more than the stored cursor find a gap and take a snapshot.
            _log.warning("Could not read the end of the stream", error=str(error))
            return cursor
        if last is None and cursor != ORIGIN:
            # The stream was emptied, perhaps of events after the stored cursor: from here on every client finds a gap.
            return EventCursor(lease.fence, 0)
        return max(cursor, last or cursor)

    async def _work(
        self, turn_id: TurnId, emitter: Emitter, manifests: ManifestWriter, tasks: asyncio.TaskGroup
    ) -> LoopResult:
        ring_next = partial(self._parts.ringer.ring_next, self._claim.lease.conversation_id)
        cached = None
        if not self._blocks_unreadable:
            cached = self._parts.timeline_cache.pop(self._claim.lease.conversation_id, self._claim.last_hash)
        try:
            start = await self._load_start(turn_id, cached)
        except EverturnError:
            # The claim has left a place in the queue in any case.
            tasks.create_task(ring_next())
            raise
        if start.may_have_next:
            tasks.create_task(ring_next())
        turn = self._build_turn(start, emitter, manifests, None if cached is None else cached.rendering)
        return await run_in_span(self._parts.loop.tracing, self._claim, turn, self._resume(turn, emitter))

    async def _resume(self, turn: LeasedTurn, emitter: Emitter) -> LoopResult:
        if self._blocks_unreadable:
            return await self._close(turn, _given_up())
        if self._claim.attempt >= MAX_ATTEMPTS:
            # What killed the workers may be an attachment or the bundle: neither is opened.
            return await self._end_unopened(turn, emitter, _given_up())
        header = turn.turn_blocks[0].body if turn.turn_blocks else None
        known = header if isinstance(header, TurnHeaderBody) else TurnHeaderBody(ordinal=turn.turn.ordinal)
        async with AsyncExitStack() as stack:
            kit = self._parts.kits.use(known.bundle_id or turn.turn.request.bundle_id, known.bundle_digest)
            try:
                with self._activity.open_call("opening the bundle"):
                    self._version = await stack.enter_async_context(kit)
            except BundleUnavailable as error:
                return await self._end_unopened(turn, emitter, _without_bundle(error))
            revision = (known.skills_revision or 0) if turn.turn_blocks else turn.skills_revision
            self._project_skills = await self._parts.retries.call(
                lambda: self._parts.project_skills.load(turn.lease.principal, revision)
            )
            turn.skills = self._version.skills.plus(self._project_skills)
            return await self._run_opened(turn, emitter)

    async def _end_unopened(self, turn: LeasedTurn, emitter: Emitter, end: TurnEnd) -> TurnEnd:
        """End the turn without its bundle; its beginning is written if it has none yet."""
        if turn.turn_blocks:
            await turn.inbox.load_unseen()
            emitter.rewind()
            turn.emit(_running(turn))
        else:
            self._emit_start(turn)
            opening = draft_opening(turn.turn, turn.fresh_feedback, {}, turn.now(), turn.show_files)
            end = replace(end, content=opening)
        return await self._close(turn, end)

    async def _run_opened(self, turn: LeasedTurn, emitter: Emitter) -> LoopResult:
        # A worker that died before the turn was opened has not called the deciding model.
        takeovers = self._claim.attempt if turn.turn_blocks else 0
        if turn.turn_blocks:
            # A rewind shows the signals too.
            await turn.inbox.load_unseen()
            emitter.rewind()
            turn.emit(_running(turn))
        else:
            await self._open(turn)
        kit = self._kit(turn)
        # A worker that claimed the turn only to end it makes no calls.
        title_model = None if turn.progress.is_titled or turn.handover else kit.title_model
        async with run_title_call(turn.title, title_model, kit.title_prompt, self._parts.loop.tracing) as settle_title:
            result = await self._run_loop(turn, emitter, takeovers=takeovers)
            if isinstance(result, Parked):
                await settle_title()
            return result

    async def _run_loop(self, turn: LeasedTurn, emitter: Emitter, *, takeovers: int) -> LoopResult:
        try:
            return await build_loop(self._kit(turn), self._parts.loop, turn).run(turn, takeovers=takeovers)
        except DEFECTS:
            TURN_CRASHES.inc()
            # Another attempt may succeed; if this was the last one, the person gets the true reason.
            if self._claim.attempt + 1 < MAX_ATTEMPTS:
                raise
            _log.exception("Turn crashed and was closed", conversation_id=self._claim.lease.conversation_id)
            limit = round_limit(self._kit(turn).limits, turn.progress)
            return await self._close(turn, build_crash_end(turn, emitter.shown_answer(), limit))

    def _kit(self, turn: LeasedTurn) -> TurnKit:
        return self._version.for_turn(turn.lease.principal, turn.progress.chosen_tools, self._project_skills.lines)

    async def _close(self, turn: LeasedTurn, end: TurnEnd) -> TurnEnd:
        return await TurnBoundaries(self._kit(turn), self._parts.loop).close(turn, end)

    async def _load_start(self, turn_id: TurnId, cached: CachedTimeline | None) -> TurnStart:
        timelines, lease, ask = self._parts.timelines, self._claim.lease, self._parts.retries.call
        where = lease.principal, lease.conversation_id, turn_id
        with_blocks = cached is None and not self._blocks_unreadable
        try:
            start = await ask(lambda: timelines.load_start(*where, with_blocks=with_blocks))
        except NotFound as error:
            # Only an erasure of the conversation removes a turn's row, and the lease with it.
            raise StaleFence(lease.conversation_id) from error
        if not start.turn.status.is_open:
            # This worker was frozen since its claim, and another one has ended the turn.
            raise StaleFence(lease.conversation_id)
        return start if cached is None else replace(start, blocks=cached.blocks)

    def _build_turn(
        self, start: TurnStart, emitter: Emitter, manifests: ManifestWriter, rendering: Rendering | None
    ) -> LeasedTurn:
        timelines, who = self._parts.timelines, self._claim.lease.principal
        report = partial(_report_signal, emitter, tenant=who.tenant, project=who.project)
        self._inbox = TurnInbox(
            timelines,
            who,
            start.turn.id,
            self._claim.inbox_seq,
            has_signals=start.has_signals,
            report=report,
            retries=self._parts.retries,
        )
        self._turn = LeasedTurn(
            self._claim,
            start,
            timelines=timelines,
            emitter=emitter,
            manifests=manifests,
            inbox=self._inbox,
            clock=self._parts.clock,
            lease_age_s=self._lease_age_s,
            activity=self._activity,
            claimed_at_s=self._held_at,
            approvals=self._parts.approvals,
            retries=self._parts.retries,
            rendering=rendering,
        )
        self._turn.handover = self._handover
        return self._turn

    def _lease_age_s(self) -> float:
        return self._parts.clock.monotonic() - self._confirmed_at

    def _emit_start(self, turn: LeasedTurn) -> None:
        who = turn.lease.principal
        turn.emit(build_start_event(turn.turn, tenant=who.tenant, project=who.project))

    async def _open(self, turn: LeasedTurn) -> None:
        """Write the beginning of the turn."""
        row = turn.turn
        self._emit_start(turn)
        turn.emit(_running(turn))  # sent together with the start
        request = row.request
        files = [*request.attachments, *(file for event in request.events for file in event.attachments)]
        previews = await self._parts.loop.attachments.load_previews(files)
        kit = self._kit(turn)
        is_ended = bool(through_last_end(await turn.inbox.load_unseen()))
        tools = None if is_ended else await select_tools(kit, turn, self._parts.loop.tracing)
        opening = draft_opening(
            row,
            turn.fresh_feedback,
            previews,
            turn.now(),
            turn.show_files,
            codec=kit.codec.name,
            tools=tools,
            bundle=self._version,
            skills_revision=turn.skills_revision,
        )
        await turn.commit(add_prune_notice(opening, self._parts.pruning, turn.blocks))
        self._parts.loop.failpoints.hit("turn.opened")

    async def _announce(self, turn_id: TurnId, emitter: Emitter) -> None:
        """Publish the end. The call that releases the lease records that."""
        self._parts.loop.failpoints.hit("turn.after_c3")
        if await self._flush(emitter):
            self._parts.loop.failpoints.hit("turn.published")
            self._announced = emitter.seal()


async def _clear_erased(parts: RunnerDependencies, lease: Lease) -> bool:
    """Return whether the lease was lost because the conversation is erased, which is no failure.

    An erasure removes the lease, the rows, then the objects: what this turn saved after that would remain.
    """
    try:
        async with asyncio.timeout(CLEAR_S):
            await parts.timelines.load_title(lease.principal, lease.conversation_id)
    except NotFound:
        await _clear_objects(parts, lease)
        LEASES_ERASED.inc()
        _log.info("Conversation was erased while its turn ran", conversation_id=lease.conversation_id)
        return True
    except (EverturnError, TimeoutError) as error:
        _log.warning(
            "Could not find out why the lease was lost", conversation_id=lease.conversation_id, error=str(error)
        )
    return False


async def _clear_objects(parts: RunnerDependencies, lease: Lease) -> None:
    try:
        async with asyncio.timeout(CLEAR_S):
            await delete_erased_objects(parts.artifacts, parts.loop.objects, lease.principal, lease.conversation_id)
    except (EverturnError, TimeoutError) as error:
        _log.error(
            "Could not delete objects of an erased conversation",
            conversation_id=lease.conversation_id,
            error=str(error),
        )


def _report_signal(emitter: Emitter, signal: Signal, *, tenant: str, project: str) -> None:
    emitter.emit(build_signal_event(build_signal_view(signal, tenant=tenant, project=project)))


def _running(turn: LeasedTurn) -> ConvStatus:
    return ConvStatus(state="running", turn_id=turn.turn_id)


def _given_up() -> TurnEnd:
    detail = f"It was interrupted {MAX_ATTEMPTS} times. Try again; if it happens again, contact the operator."
    return TurnEnd(None, problem("turn-given-up", "The turn was abandoned", 500, detail))


def _without_bundle(error: BundleUnavailable) -> TurnEnd:
    detail = f"The agent that this message was for does not exist any more ({error.detail}). Choose another one."
    return TurnEnd(None, problem("unknown-bundle", "The agent is not available", 410, detail))
