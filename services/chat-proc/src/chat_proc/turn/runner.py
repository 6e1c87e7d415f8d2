"""One claim at work: opens or resumes the turn, runs the loop, announces the end, hands the lease back."""

import asyncio
from dataclasses import dataclass
from enum import StrEnum

import structlog

from chat_proc.agent.loop import AgentLoop, HandedOver
from chat_proc.agent.open_turn import TurnEnd
from chat_proc.agent.race import Stopped, run_until
from chat_proc.stream.emitter import Emitter
from chat_proc.turn.announcing import Announcer
from chat_proc.turn.context import LeasedTurn
from chat_proc.turn.inbox import LeasedInbox
from chat_proc.turn.opening import build_opening
from everturn.errors import NotFound, StaleFence, Unavailable
from everturn.model.ids import TurnId
from everturn.model.leases import Claim
from everturn.model.problems import problem
from everturn.ports.clock import Clock, iso
from everturn.ports.event_stream import EventWriter
from everturn.ports.leases import Leases
from everturn.ports.objects import Objects
from everturn.ports.timelines import Timelines
from everturn.telemetry.failpoints import Failpoints
from everturn.telemetry.metrics import TURNS_ENDED
from everturn.wire.events import ChatStart, ConvStatus

_log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 3
"""Takeovers without progress after which a turn is given up."""
FLUSH_S = 5.0
"""How long the end of a turn waits for its events to go out before the sweeper is left to announce it."""


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """What every turn of a worker shares."""

    leases: Leases
    timelines: Timelines
    writer: EventWriter
    objects: Objects
    loop: AgentLoop
    announcer: Announcer
    clock: Clock
    failpoints: Failpoints


class StopReason(StrEnum):
    """Why a turn's work was stopped from outside."""

    LOST = "lost"
    CUT = "cut"


class TurnRunner:
    """Makes a ClaimedTurn of each claim."""

    def __init__(self, parts: RunnerParts) -> None:
        self._parts = parts

    def hold(self, claim: Claim) -> "ClaimedTurn":
        return ClaimedTurn(self._parts, claim)


class ClaimedTurn:
    """Owned by the claim loop; the heartbeat and the bells call its small methods."""

    def __init__(self, parts: RunnerParts, claim: Claim) -> None:
        self._parts = parts
        self._claim = claim
        self._stop = asyncio.Event()
        self._stop_reason: StopReason | None = None
        self._handover = False
        self._inbox: LeasedInbox | None = None
        self._turn: LeasedTurn | None = None

    @property
    def fence(self) -> int:
        return self._claim.lease.fence

    def notice_inbox(self, inbox_seq: int) -> None:
        if self._inbox is not None:
            self._inbox.notice_seq(inbox_seq)

    def ring_inbox(self) -> None:
        if self._inbox is not None:
            self._inbox.ring()

    def request_handover(self) -> None:
        self._handover = True
        if self._turn is not None:
            self._turn.handover = True

    def lose_lease(self) -> None:
        self._end_work(StopReason.LOST)

    def cut_short(self) -> None:
        self._end_work(StopReason.CUT)

    async def run(self) -> None:
        """Raises StaleFence when the lease was lost on the way; then nothing more was written."""
        if self._claim.turn_id is not None and not await self._run_turn(self._claim.turn_id):
            await self._parts.announcer.hand_back(self._claim.lease, requeue=True)
            return
        for turn_id in self._claim.unannounced:
            await self._parts.announcer.announce_ended(self._claim, turn_id)
        await self._parts.announcer.hand_back(self._claim.lease, requeue=False)

    async def _run_turn(self, turn_id: TurnId) -> bool:
        """Whether the turn has ended; otherwise another worker is to go on with it."""
        emitter = await self._open_emitter(turn_id)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(emitter.run())
            stale = tasks.create_task(self._watch(emitter))
            try:
                result = await run_until(self._stop.wait(), self._work(turn_id, emitter))
                if not isinstance(result, Stopped) and not isinstance(result.value, HandedOver):
                    await self._announce(turn_id, emitter)
                    return True
                if self._stop_reason is StopReason.LOST:
                    raise StaleFence()
                await emitter.flush(FLUSH_S)
                return False
            finally:
                stale.cancel()
                emitter.close()

    async def _watch(self, emitter: Emitter) -> None:
        await emitter.stale.wait()
        self.lose_lease()

    def _end_work(self, reason: StopReason) -> None:
        # A lost lease outweighs a drain: nothing may be written then.
        if self._stop_reason is not StopReason.LOST:
            self._stop_reason = reason
        self._stop.set()

    async def _open_emitter(self, turn_id: TurnId) -> Emitter:
        claim = self._claim
        cursor = claim.cursor
        try:
            cursor = max(cursor, await self._parts.writer.load_last(claim.lease.conversation_id) or cursor)
        except Unavailable as error:
            # Clients that saw more than the stored cursor find a gap and take a snapshot.
            _log.warning("stream_end_unknown", error=str(error))
        return Emitter(
            self._parts.writer,
            self._parts.clock,
            conversation_id=claim.lease.conversation_id,
            turn_id=turn_id,
            fence=claim.lease.fence,
            cursor=cursor,
        )

    async def _work(self, turn_id: TurnId, emitter: Emitter) -> TurnEnd | HandedOver:
        turn = await self._load(turn_id, emitter)
        if turn.turn_blocks:
            emitter.rewind()
        elif (end := await self._open(turn)) is not None:
            return await self._parts.loop.close(turn, end)
        if self._claim.attempt >= MAX_ATTEMPTS:
            return await self._parts.loop.close(turn, _given_up())
        turn.emit(ConvStatus(state="running", turn_id=turn_id))
        return await self._parts.loop.run(turn, resumed=self._claim.attempt > 0)

    async def _load(self, turn_id: TurnId, emitter: Emitter) -> LeasedTurn:
        timelines, lease = self._parts.timelines, self._claim.lease
        row = await timelines.load_turn(lease.principal, turn_id)
        blocks = await timelines.load_blocks(lease.principal, lease.conversation_id)
        self._inbox = LeasedInbox(timelines, lease.principal, turn_id, self._claim.inbox_seq)
        self._turn = LeasedTurn(
            self._claim,
            row,
            blocks,
            timelines=timelines,
            objects=self._parts.objects,
            emitter=emitter,
            inbox=self._inbox,
            clock=self._parts.clock,
            usage=await timelines.load_usage(lease.principal, turn_id),
        )
        self._turn.handover = self._handover
        return self._turn

    async def _open(self, turn: LeasedTurn) -> TurnEnd | None:
        feedback = await self._parts.timelines.load_fresh_feedback(turn.principal, turn.conversation_id)
        try:
            opening = await build_opening(turn.turn, feedback, self._parts.objects, turn.now())
        except (Unavailable, NotFound, TimeoutError) as error:
            return TurnEnd(None, problem("attachment-unreadable", "An attachment can't be read.", 503, str(error)))
        start = ChatStart(
            turn_id=turn.turn_id,
            ordinal=turn.turn.ordinal,
            text=turn.turn.request.text,
            attachments=turn.file_views(turn.turn.request.attachments),
            created_at=iso(turn.turn.created_at),
        )
        turn.emit(start)
        await turn.commit(opening)
        self._parts.failpoints.hit("turn.opened")
        return None

    async def _announce(self, turn_id: TurnId, emitter: Emitter) -> None:
        self._parts.failpoints.hit("turn.after_c3")
        TURNS_ENDED.labels(self._turn.turn.status.value if self._turn else "").inc()
        if await emitter.flush(FLUSH_S):
            await self._parts.timelines.save_announced(self._claim.lease, turn_id)
        self._parts.failpoints.hit("turn.announced")


def _given_up() -> TurnEnd:
    detail = f"{MAX_ATTEMPTS} workers stopped while they worked on it."
    return TurnEnd(None, problem("turn-given-up", "The turn was given up.", 500, detail))
