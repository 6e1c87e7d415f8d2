"""The claim loop: a free slot waits for the doorbells of all lanes, claims a conversation, and runs its turn.

While all ordinary slots are occupied, the loop asks the database for a turn that may run in an extra slot.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog
from structlog.contextvars import bind_contextvars

from chat_proc.bounds import TENANT_PART
from chat_proc.worker.heartbeat import Heartbeat
from chat_proc.worker.presence import TurnDurationAverage
from chat_proc.worker.ringing import Ringer
from chat_proc.worker.runner import TurnRunner
from everturn.core.cancellation import Stopped, run_until
from everturn.core.clock import Clock
from everturn.core.errors import EverturnError, StaleFence, Unavailable
from everturn.core.failpoints import Failpoints
from everturn.core.identity import Lane, lane_of
from everturn.core.ids import ConversationId
from everturn.core.loops import guarded, run_guarded
from everturn.core.metrics import (
    EXTRA_SLOTS_USED,
    TURNS_CLAIMED,
    TURNS_DEFERRED,
    TURNS_LOST,
    TURNS_REQUEUED,
    TURNS_TAKEN_OVER,
    WORKER_SLOTS,
    WORKER_TURNS,
)
from everturn.events.stream import InboxBells
from everturn.queue.model import Doorbells
from everturn.turns.model import Claim, ClaimBounds, Deferred, Lease, SlotKind
from everturn.turns.ports import FairClaims, Leases

_log = structlog.get_logger(__name__)

EXCLUSIVE_WAIT_S = 60.0
"""How long a suspect turn waits for the worker's other turns to end before it runs concurrently with them."""

T = TypeVar("T")

WAIT_S = 0.5
"""Timeout of one wait for a doorbell or a free slot; bounds how late a drain is noticed."""
RETRY_S = 0.5
EXTRA_POLL_S = 0.5
"""Interval between two queries for a turn that may run in an extra slot; most of the wait of such a turn."""
LEND_AFTER_S = 2.0
"""A turn that has sent nothing for this long waits for a program or a model, and its slot is lent."""
CLAIM_TRIES = 4
"""Claim attempts per doorbell, when its turn is over a bound and other workers claim the alternatives meanwhile."""
REQUEUE_S = 600.0
"""How long a worker keeps trying to requeue a turn that a database outage interrupted."""
SUSPECT_ATTEMPTS = 2
"""After this many takeovers without progress, a turn is suspected of killing its worker."""
LANE_WEIGHTS = ((Lane.PRIVILEGED, 8), (Lane.PAID, 4), (Lane.REGISTERED, 2), (Lane.ANONYMOUS, 1))


class Slots:
    """Counts running turns. A turn that may kill its worker runs alone, so that it kills no other turn.

    Beyond its ordinary slots a worker has some extra ones. They are not first come, first served: the claim rule
    reserves them for users without a running turn, and lends them to replace slots whose turns make no progress.
    """

    def __init__(self, count: int, *, extra: int = 0, exclusive_wait_s: float = EXCLUSIVE_WAIT_S) -> None:
        self._count = count
        self._extra = extra
        WORKER_SLOTS.set(count)
        self._exclusive_wait_s = exclusive_wait_s
        self._running = 0
        self._exclusive = 0
        self._waiting = 0
        self._changed = asyncio.Event()

    @property
    def running(self) -> int:
        return self._running

    @property
    def is_extra_free(self) -> bool:
        """Whether all ordinary slots are occupied and an extra one is free."""
        return self._count <= self._running < self._count + self._extra and not self._exclusive

    @property
    def beyond(self) -> int:
        """How many turns run beyond the ordinary slots."""
        return max(0, self._running - self._count)

    def acquire(self) -> None:
        """Occupy a slot; a control claim may go over the count."""
        self._running += 1
        WORKER_TURNS.set(self._running)

    def release(self) -> None:
        self._running -= 1
        WORKER_TURNS.set(self._running)
        self._changed.set()

    async def wait_free(self) -> None:
        """Return once an ordinary slot is free and no turn runs alone."""
        while self._running >= self._count or self._exclusive:
            self._changed.clear()
            await self._changed.wait()

    async def wait_idle(self) -> None:
        """Return once no turn runs."""
        while self._running:
            self._changed.clear()
            await self._changed.wait()

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """Start no other turns until the block exits; those that run may go on (`wait_exclusive`)."""
        self._exclusive += 1
        try:
            yield
        finally:
            self._exclusive -= 1
            self._changed.set()

    async def wait_exclusive(self) -> None:
        """Within `exclusive`: wait for the running turns to end, for at most `exclusive_wait_s`."""
        self._waiting += 1
        try:
            async with asyncio.timeout(self._exclusive_wait_s):
                # Other waiting suspects hold slots but don't run: one of them starts first, the others wait for it.
                while self._running > self._waiting:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return
        finally:
            self._waiting -= 1


def lane_orders() -> tuple[tuple[Lane, ...], ...]:
    """A cycle of lane orders to poll: each lane is first as often as its weight says."""
    lanes = [lane for lane, _ in LANE_WEIGHTS]
    total = sum(weight for _, weight in LANE_WEIGHTS)
    credit = dict.fromkeys(lanes, 0)
    orders: list[tuple[Lane, ...]] = []
    for _ in range(total):
        for lane, weight in LANE_WEIGHTS:
            credit[lane] += weight
        first = max(lanes, key=lambda lane: credit[lane])
        credit[first] -= total
        orders.append((first, *(lane for lane in lanes if lane is not first)))
    return tuple(orders)


def build_claim_bounds(user_running_max: int, slots: int, extra_slots: int) -> ClaimBounds:
    """The bounds of running turns; `slots` and `extra_slots` are those of all workers that are alive now."""
    return ClaimBounds(user_running_max, max(1, math.ceil(slots / TENANT_PART)), slots, extra_slots)


@dataclass(frozen=True, slots=True)
class _FairClaim:
    """The result of a doorbell: the turn to start, of this or another conversation.

    `waits_in` is the lane of the doorbell's own turn if that was deferred and still waits.
    """

    claim: Claim | None = None
    requested_at_s: float = 0.0
    waits_in: Lane | None = None


class ClaimLoop:
    """Owns the running turns of one worker."""

    def __init__(
        self,
        *,
        leases: Leases,
        claims: FairClaims,
        clock: Clock,
        bounds: Callable[[], ClaimBounds],
        doorbells: Doorbells,
        ringer: Ringer,
        bells: InboxBells,
        heartbeat: Heartbeat,
        build_runner: Callable[[Claim, float], TurnRunner],
        slots: Slots,
        turn_average: TurnDurationAverage,
        failpoints: Failpoints,
        ring_indexer: Callable[[], None],
    ) -> None:
        self._leases = leases
        self._claims = claims
        self._clock = clock
        self._bounds = bounds
        self._doorbells = doorbells
        self._ringer = ringer
        self._bells = bells
        self._heartbeat = heartbeat
        self._build_runner = build_runner
        self._slots = slots
        self._turn_average = turn_average
        self._failpoints = failpoints
        self._ring_indexer = ring_indexer
        self._runners: dict[asyncio.Task[None], TurnRunner] = {}
        self._draining = asyncio.Event()

    async def run(self) -> None:
        """Claim until drained, then until all turns have ended."""
        async with asyncio.TaskGroup() as tasks:
            bells = tasks.create_task(run_guarded("inbox_bells", self._listen_for_inbox))
            control = tasks.create_task(run_guarded("claims_control", partial(self._claim_control, tasks)))
            ordinary = tasks.create_task(run_guarded("claims", partial(self._claim_ordinary, tasks)))
            extra = tasks.create_task(run_guarded("claims_extra", partial(self._claim_extra, tasks)))
            await self._draining.wait()
            await asyncio.gather(control, ordinary, extra)
            if self._runners:
                await asyncio.wait(self._runners)
            bells.cancel()

    def drain(self) -> None:
        """Stop claiming; ask running turns to stop before their next model call."""
        self._draining.set()
        for runner in self._runners.values():
            runner.request_handover()

    def interrupt(self) -> None:
        """Interrupt running turns, even in the middle of a generation or a tool, and return them to the queue."""
        for runner in self._runners.values():
            runner.interrupt()

    async def _claim_ordinary(self, tasks: asyncio.TaskGroup) -> None:
        orders = lane_orders()
        turn_of = 0
        while await self._wait_free():
            conversation_id = await self._next_ring(orders[turn_of % len(orders)])
            turn_of += 1
            # During the wait for the doorbell, a suspect turn may have begun to run alone.
            if conversation_id is not None and await self._wait_free():
                await self._claim_fairly(tasks, conversation_id)

    async def _claim_fairly(self, tasks: asyncio.TaskGroup, conversation_id: ConversationId) -> None:
        """Start this turn or, if it is over a bound, one with a higher priority for the slot."""
        found = await self._claim_or_follow(conversation_id)
        if found.claim is not None:
            self._start(tasks, found.claim, found.requested_at_s)
        if found.waits_in is not None:
            # The doorbell of the deferred turn returns to its lane.
            await self._ringer.ring(found.waits_in, conversation_id)

    async def _claim_or_follow(self, conversation_id: ConversationId) -> _FairClaim:
        """Claim this turn or, while it is over a bound, the one to which it is deferred."""
        asked, deferred_in = conversation_id, None
        for _ in range(CLAIM_TRIES):
            requested_at_s = self._clock.monotonic()
            claiming = self._claims.try_claim_fairly(asked, self._bounds(), SlotKind.ORDINARY)
            claimed = await self._try_claim(asked, claiming)
            if isinstance(claimed, Deferred):
                TURNS_DEFERRED.inc()
                asked, deferred_in = claimed.to, deferred_in or claimed.lane
            elif asked == conversation_id:
                # Claimed, or nothing left to claim: the doorbell is used up.
                return _FairClaim(claimed, requested_at_s)
            elif claimed is not None:
                return _FairClaim(claimed, requested_at_s, deferred_in)
            else:
                # Another worker has claimed that one: perhaps this turn may run now.
                asked = conversation_id
        return _FairClaim(waits_in=deferred_in)

    async def _claim_extra(self, tasks: asyncio.TaskGroup) -> None:
        while not self._draining.is_set():
            if self._slots.is_extra_free and await self._start_extra(tasks):
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(EXTRA_POLL_S):
                    await self._draining.wait()

    async def _start_extra(self, tasks: asyncio.TaskGroup) -> bool:
        """Whether a turn was started in an extra slot."""
        idle = sum(runner.idle_s >= LEND_AFTER_S for runner in self._runners.values())
        slot = SlotKind.LENT if idle > self._slots.beyond else SlotKind.RESERVED
        bounds = self._bounds()
        try:
            conversation_id = await self._claims.find_extra_turn(bounds, slot)
        except EverturnError as error:
            _log.warning("Could not find a turn for the extra slot", error=str(error))
            return False
        # During the search, a suspect turn may have begun to run alone.
        if conversation_id is None or self._draining.is_set() or not self._slots.is_extra_free:
            return False
        requested_at_s = self._clock.monotonic()
        claiming = self._claims.try_claim_fairly(conversation_id, bounds, slot)
        claimed = await self._try_claim(conversation_id, claiming)
        if not isinstance(claimed, Claim):
            return False
        EXTRA_SLOTS_USED.labels(slot.value).inc()
        self._start(tasks, claimed, requested_at_s)
        return True

    async def _wait_free(self) -> bool:
        """Return True once a slot is free, and False when the worker drains; then the sweeper rings again."""
        while not self._draining.is_set():
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._slots.wait_free()
            except TimeoutError:
                continue
            return not self._draining.is_set()
        return False

    async def _claim_control(self, tasks: asyncio.TaskGroup) -> None:
        while not self._draining.is_set():
            conversation_id = await self._next_ring((Lane.CONTROL,))
            if conversation_id is None or self._draining.is_set():
                continue
            # A cancelled turn ends before its next round, so it needs no slot and no bound applies to it. If the cancel
            # was retracted, the turn is handed over there instead, to wait for a slot.
            requested_at_s = self._clock.monotonic()
            claim = await self._try_claim(conversation_id, self._leases.try_claim(conversation_id))
            if claim is not None:
                self._start(tasks, claim, requested_at_s).request_handover()

    async def _next_ring(self, lanes: Sequence[Lane]) -> ConversationId | None:
        try:
            return await self._doorbells.next_ring(lanes, timeout_s=WAIT_S)
        except Unavailable as error:
            _log.warning("Could not wait for doorbells", error=str(error))
            await asyncio.sleep(RETRY_S)
            return None

    async def _try_claim(self, conversation_id: ConversationId, claim: Awaitable[T]) -> T | None:
        try:
            return await claim
        except EverturnError as error:
            # The turn stays queued: the sweeper rings again.
            _log.warning("Could not claim a conversation", conversation_id=conversation_id, error=str(error))
            return None

    def _start(self, tasks: asyncio.TaskGroup, claim: Claim, requested_at_s: float) -> TurnRunner:
        conversation_id = claim.lease.conversation_id
        TURNS_CLAIMED.inc()
        if claim.turn_id is not None and claim.attempt:
            TURNS_TAKEN_OVER.inc()
        self._failpoints.hit("turn.claimed")
        runner = self._build_runner(claim, requested_at_s)
        self._slots.acquire()
        task = tasks.create_task(self._run(tasks, claim, runner, requested_at_s), name=f"turn {conversation_id}")
        self._runners[task] = runner
        if self._draining.is_set():
            runner.request_handover()
        task.add_done_callback(self._runners.pop)
        return runner

    async def _run(self, tasks: asyncio.TaskGroup, claim: Claim, runner: TurnRunner, requested_at_s: float) -> None:
        conversation_id = claim.lease.conversation_id
        # This task's own context: every log line of the turn carries these fields.
        bind_contextvars(conversation_id=conversation_id, turn_id=claim.turn_id, tenant=claim.lease.principal.tenant)
        self._heartbeat.hold(conversation_id, runner, requested_at_s)
        try:
            # A hanging turn frees its slot too, after its lease has expired.
            is_suspect = claim.attempt >= SUSPECT_ATTEMPTS
            work = self._run_exclusively(runner) if is_suspect else self._run_measured(claim, runner)
            # After an unexpected error the lease expires and another attempt is made, at most three in all.
            with guarded("turn", passing=(StaleFence, Unavailable), conversation_id=conversation_id):
                if isinstance(await run_until(runner.wait_overdue(), work, name=f"work on {conversation_id}"), Stopped):
                    _log.error("Turn is still running after its lease was lost", conversation_id=conversation_id)
        except (StaleFence, Unavailable) as error:
            TURNS_LOST.inc()
            _log.warning("Lost a turn", conversation_id=conversation_id, fence=claim.lease.fence, error=repr(error))
            if self._heartbeat.saw_outage(conversation_id, runner) and not runner.left_behind:
                tasks.create_task(self._requeue_bounded(claim.lease), name=f"requeue {conversation_id}")
        finally:
            self._heartbeat.drop(conversation_id, runner)
            self._slots.release()
            self._ring_indexer()

    async def _requeue_bounded(self, lease: Lease) -> None:
        with guarded("turn_requeue", conversation_id=lease.conversation_id):
            await self._requeue(lease)

    async def _requeue(self, lease: Lease) -> None:
        """Return a turn that an outage interrupted to the queue, once the database answers.

        If its lease expired instead, the outage would count as a worker killed by the turn. Sweepers ignore expired
        leases for a while after an outage; if another worker holds the turn nevertheless, the fence rejects the
        release.
        """
        give_up_at = asyncio.get_running_loop().time() + REQUEUE_S
        is_queued = False
        while True:
            try:
                if not is_queued:
                    if not await self._leases.release(lease, requeue=True):
                        return
                    is_queued = True
                    TURNS_REQUEUED.inc()
                    _log.info("Returned a turn to the queue", conversation_id=lease.conversation_id)
                await self._doorbells.ring(lane_of(lease.principal.roles), lease.conversation_id)
                return
            except Unavailable as error:
                if self._draining.is_set() or asyncio.get_running_loop().time() > give_up_at:
                    _log.warning(
                        "Could not return a turn to the queue", conversation_id=lease.conversation_id, error=str(error)
                    )
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._draining.wait()

    async def _run_measured(self, claim: Claim, runner: TurnRunner) -> None:
        """Only turns that run from start to end in one attempt count for the average."""
        began = asyncio.get_running_loop().time()
        if await runner.run() and claim.turn_id is not None and claim.attempt == 0:
            self._turn_average.note(asyncio.get_running_loop().time() - began)

    async def _run_exclusively(self, runner: TurnRunner) -> None:
        with self._slots.exclusive():
            if not isinstance(await run_until(self._draining.wait(), self._slots.wait_exclusive()), Stopped):
                await runner.run()
                return
        # Released before it starts: an expired lease would count as one more dead worker.
        runner.interrupt()
        await runner.run()

    async def _listen_for_inbox(self) -> None:
        while True:
            try:
                async for conversation_id in self._bells.listen():
                    self._heartbeat.ring_inbox(conversation_id)
            except Unavailable as error:
                _log.warning("Could not wait for inbox notifications", error=str(error))
            await asyncio.sleep(RETRY_S)
