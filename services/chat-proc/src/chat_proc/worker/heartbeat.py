"""Renews all leases of this worker in one statement, and notifies each turn of its inbox position."""

import asyncio
from collections.abc import Mapping

import structlog

from chat_proc.worker.runner import TurnRunner
from everturn.core.cancellation import describe_tasks, end_tasks
from everturn.core.clock import Clock
from everturn.core.errors import Unavailable
from everturn.core.ids import ConversationId
from everturn.core.lease_timing import LeaseTiming
from everturn.core.loops import guarded
from everturn.core.metrics import LEASES_LOST, TURNS_STALLED
from everturn.turns.ports import Leases

_log = structlog.get_logger(__name__)

STALL_S = 120.0
"""A turn that makes no progress for this long, with no call open, is stuck. All waits inside a turn are bounded: the
longest is a database call with all its retries, below 100 s."""
LATE_S = 1.0
"""A renewal that fails this long after its limit indicates a stalled process, not a database outage."""


class Heartbeat:
    """Owns the set of held leases. The claim loop calls `hold` and `drop`; `run` is a task of its own."""

    def __init__(self, leases: Leases, clock: Clock, *, lease_s: float, stall_s: float = STALL_S) -> None:
        self._leases = leases
        self._clock = clock
        timing = LeaseTiming(lease_s)
        self._every_s, self._give_up_s, self._lease_s = timing.renew_every_s, timing.give_up_s, lease_s
        self._stall_s = stall_s
        self._failed_at_s: float | None = None
        self._held: dict[ConversationId, TurnRunner] = {}
        self._confirmed: dict[ConversationId, float] = {}
        self._lost_in_outage: dict[ConversationId, TurnRunner] = {}
        """Turns that are winding up. This can outlast a lease if the server hangs."""
        self._renewing: set[asyncio.Task[Mapping[ConversationId, int | None]]] = set()
        """The current renewal, and timed-out ones that still clean up."""

    def hold(self, conversation_id: ConversationId, runner: TurnRunner, requested_at_s: float) -> None:
        """Renew for this turn too. `requested_at_s` is the monotonic time before the claim was sent, so that the lease
        is never assumed to last longer than in the database, however late the answer arrived."""
        self._held[conversation_id] = runner
        self._confirmed[conversation_id] = requested_at_s
        runner.confirm_lease(requested_at_s)

    def drop(self, conversation_id: ConversationId, runner: TurnRunner) -> None:
        """Stop renewing for this turn. If it lost its lease and was slow to wind up, this worker may already hold the
        conversation again; that newer turn stays."""
        if self._held.get(conversation_id) is runner:
            del self._held[conversation_id], self._confirmed[conversation_id]
        if self._lost_in_outage.get(conversation_id) is runner:
            del self._lost_in_outage[conversation_id]

    def saw_outage(self, conversation_id: ConversationId, runner: TurnRunner) -> bool:
        """Whether the database left a renewal unanswered within one lease duration before this turn lost its lease, or
        before now. Valid only until the turn is dropped.

        Turns that fail in that time fail because of the outage, not through a fault of their own.
        """
        return self._lost_in_outage.get(conversation_id) is runner or self._is_outage()

    def _is_outage(self) -> bool:
        return self._failed_at_s is not None and self._clock.monotonic() - self._failed_at_s <= self._lease_s

    def ring_inbox(self, conversation_id: ConversationId) -> None:
        """Notify the conversation's turn, if it runs here, of a new signal."""
        if (runner := self._held.get(conversation_id)) is not None:
            runner.ring_inbox()

    def log_turns(self) -> None:
        """Log what each turn does and where each task waits, to find out why a turn is slow."""
        turns = [f"{conversation_id} {runner.describe()}" for conversation_id, runner in self._held.items()]
        _log.warning("The turns of this worker and its tasks", turns=turns, tasks=describe_tasks())

    async def run(self) -> None:
        """Renew until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._until_next_s())
                with guarded("heartbeat_renewal"):
                    await self.beat()
                # After any failure too, unconfirmed leases are given up in time.
                self._give_up_unconfirmed()
        finally:
            await end_tasks(*self._renewing)

    async def beat(self) -> None:
        """Renew all leases once; those that are gone, or unconfirmed for too long, are lost."""
        self._release_stalled()
        requested_at = self._clock.monotonic()
        fences = {conversation_id: runner.fence for conversation_id, runner in self._held.items()}
        if not fences:
            return
        limit_s = self._until_next_s()
        try:
            renewed = await self._renew(fences, limit_s)
        except (Unavailable, TimeoutError) as error:
            _log.warning("Could not renew the leases", error=str(error))
            if self._clock.monotonic() - requested_at <= limit_s + LATE_S:
                self._failed_at_s = self._clock.monotonic()
            self._give_up_unconfirmed()
            return
        for conversation_id, fence in fences.items():
            runner = self._held.get(conversation_id)
            if runner is None or runner.fence != fence:
                continue
            if conversation_id in renewed:
                # Without an inbox_seq the lease is held but was not renewed: its earlier expiry remains.
                if (inbox_seq := renewed[conversation_id]) is not None:
                    self._confirmed[conversation_id] = requested_at
                    runner.confirm_lease(requested_at)
                    runner.notice_inbox(inbox_seq)
            elif runner.is_releasing:
                self.drop(conversation_id, runner)
            else:
                self._lose_lease(conversation_id, "taken over")

    async def _renew(self, fences: Mapping[ConversationId, int], limit_s: float) -> Mapping[ConversationId, int | None]:
        """Raises TimeoutError after `limit_s`, without waiting for the renewal to clean up.

        The driver gives a connection to a hanging server 5 s more. Waiting for that would make a hanging server look
        like a stalled process, and leases would be given up too late.
        """
        renewing = asyncio.create_task(self._leases.renew(fences), name="lease renewal")
        self._renewing.add(renewing)
        renewing.add_done_callback(self._end_renewal)
        try:
            await asyncio.wait({renewing}, timeout=limit_s)
        finally:
            renewing.cancel()
        if not renewing.done():
            raise TimeoutError(f"The database did not answer within {limit_s:.1f} s.")
        return renewing.result()

    def _end_renewal(self, renewing: asyncio.Task[Mapping[ConversationId, int | None]]) -> None:
        self._renewing.discard(renewing)
        if not renewing.cancelled():
            # Retrieved, so that asyncio does not report an error that is no longer awaited.
            renewing.exception()

    def _until_next_s(self) -> float:
        """The time until the next renewal, or less if a lease must be given up sooner."""
        oldest = min(self._confirmed.values(), default=self._clock.monotonic())
        return max(0.0, min(self._every_s, oldest + self._give_up_s - self._clock.monotonic()))

    def _give_up_unconfirmed(self) -> None:
        deadline = self._clock.monotonic() - self._give_up_s
        for conversation_id in [c for c, confirmed in self._confirmed.items() if confirmed <= deadline]:
            self._lose_lease(conversation_id, "not confirmed in time")

    def _release_stalled(self) -> None:
        stalled = {c: runner for c, runner in self._held.items() if runner.stalled_for_s() > self._stall_s}
        if not stalled:
            return
        tasks = describe_tasks()
        for conversation_id, runner in stalled.items():
            TURNS_STALLED.inc()
            _log.error(
                "Turn made no progress; stopped it, its lease will expire",
                conversation_id=conversation_id,
                stalled_for_s=round(runner.stalled_for_s()),
                tasks=tasks,
            )
            self._lose_lease(conversation_id, "stalled")

    def _lose_lease(self, conversation_id: ConversationId, why: str) -> None:
        LEASES_LOST.inc()
        _log.warning("Lost a lease", conversation_id=conversation_id, why=why)
        runner = self._held[conversation_id]
        self.drop(conversation_id, runner)
        if self._is_outage():
            self._lost_in_outage[conversation_id] = runner
        runner.lose_lease()
