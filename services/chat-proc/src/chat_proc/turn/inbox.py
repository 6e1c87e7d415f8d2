"""The inbox of a running turn: the signals that its worker has read, and when to read them again."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from everturn.core.identity import Principal
from everturn.core.ids import SignalId, TurnId
from everturn.core.retry import RetryPolicy
from everturn.timeline.turns import CONTROL_KINDS, Signal, SignalState
from everturn.turns.model import Promotion, SignalChange
from everturn.turns.ports import Timelines


class TurnInbox:
    """The inbox of a running turn: a notification, the heartbeat or a commit wakes it, and it reads the signals again.

    Owned by one turn runner. `seen_seq` is the conversation's inbox_seq that the last read of the rows covers. Without
    `has_signals` there were none after `inbox_seq` was read, so the rows are not read until something wakes it.

    `report` is called for each signal that a read finds new or changed, so that the event stream carries it: hints can
    get lost. A turn ends only when its last read is still current, so no change of an open turn is missed.
    """

    def __init__(
        self,
        timelines: Timelines,
        principal: Principal,
        turn_id: TurnId,
        inbox_seq: int,
        *,
        has_signals: bool = True,
        report: Callable[[Signal], None],
        retries: RetryPolicy,
    ) -> None:
        self._timelines = timelines
        self._principal = principal
        self._turn_id = turn_id
        self._retries = retries
        self._latest_seq = inbox_seq
        self._report = report
        self._known: dict[SignalId, Signal] = {}
        self._settled: set[SignalId] = set()
        """Settled by this worker's commits; a read that began earlier does not show that."""
        self._rings = 0
        self._rings_answered = 0
        """A read answers the rings before it, not those that come during it."""
        self._rung = asyncio.Event()
        self._next_ring = asyncio.Event()
        self.seen_seq = inbox_seq
        if has_signals:
            self.ring()

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals of the turn that this worker has read."""
        return tuple(self._known.values())

    @property
    def next_ring(self) -> asyncio.Event:
        """Set by the next ring. Any number of tasks can wait for it."""
        return self._next_ring

    def ring(self) -> None:
        """A signal may have arrived; the ring does not say which."""
        self._rings += 1
        self._rung.set()
        self._next_ring.set()
        self._next_ring = asyncio.Event()

    def notice_seq(self, inbox_seq: int) -> None:
        """The database's inbox_seq is at least this."""
        if inbox_seq > self._latest_seq:
            self._latest_seq = inbox_seq
            self.ring()

    def settle(self, changes: Sequence[SignalChange]) -> None:
        """A commit has settled these."""
        for change in changes:
            if (signal := self._known.get(change.signal_id)) is not None:
                self._keep_settled(replace(signal, state=change.state, round=change.round))

    def promote(self, promotion: Promotion) -> None:
        """A commit promoted these to the next turn."""
        for signal_id in promotion.signal_ids:
            if (signal := self._known.get(signal_id)) is not None:
                promoted = replace(signal, state=SignalState.PROMOTED, promoted_to=promotion.turn_id)
                self._keep_settled(promoted)

    async def load_unseen(self) -> tuple[Signal, ...]:
        """Signals that no commit has answered yet, oldest first. Reads the rows if they may have changed."""
        if self._rings > self._rings_answered:
            await self._read()
        return tuple(signal for signal in self._known.values() if signal.state is SignalState.ACCEPTED)

    async def _read(self) -> None:
        # Both numbers are taken before the rows: a signal that arrives in between is read again rather than missed.
        rings, covered = self._rings, self._latest_seq
        signals = await self._retries.call(lambda: self._timelines.load_signals(self._principal, self._turn_id))
        self._rings_answered = max(self._rings_answered, rings)
        self.seen_seq = max(self.seen_seq, covered)
        for signal in signals:
            if signal.id not in self._settled and self._known.get(signal.id) != signal:
                self._known[signal.id] = signal
                self._report(signal)

    def _keep_settled(self, signal: Signal) -> None:
        self._known[signal.id] = signal
        self._settled.add(signal.id)

    async def wait_for_control(self) -> None:
        """Return once a steer or a cancel is pending that no commit has answered."""
        while True:
            await self._rung.wait()
            if await self._answer_ring():
                # The next wait must find it too, until a commit has answered it.
                self._rung.set()
                return

    async def has_control(self) -> bool:
        """Whether a steer or a cancel is pending that no commit has answered."""
        return any(signal.kind in CONTROL_KINDS for signal in await self.load_unseen())

    async def _answer_ring(self) -> bool:
        # Clear before the read: a ring during the read must not be lost.
        self._rung.clear()
        try:
            return await self.has_control()
        except BaseException:
            # This read's signal is still unseen: a wait is cancelled whenever the work that races it ends.
            self._rung.set()
            raise
