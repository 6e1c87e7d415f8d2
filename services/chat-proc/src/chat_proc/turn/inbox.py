"""The inbox of a running turn: a bell or the heartbeat wakes it, and it reads the signal rows not answered yet."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from chat_proc.turn.patience import Patience
from everturn.model.commits import Promotion, SignalChange
from everturn.model.identity import Principal
from everturn.model.ids import SignalId, TurnId
from everturn.model.signals import CONTROL_KINDS, Signal, SignalState
from everturn.ports.timelines import Timelines


class LeasedInbox:
    """Owned by one turn runner. `seen_seq` is the conversation's inbox_seq that the last read of the rows covers.

    `report` is called for each signal that a read finds new or changed, so that the event stream carries it: hints may
    get lost. A turn ends only when its last read is still current, so no change of an open turn is missed.
    """

    def __init__(
        self,
        timelines: Timelines,
        principal: Principal,
        turn_id: TurnId,
        inbox_seq: int,
        *,
        report: Callable[[Signal], None],
        patience: Patience | None = None,
    ) -> None:
        self._timelines = timelines
        self._principal = principal
        self._turn_id = turn_id
        self._patience = patience or Patience()
        self._latest_seq = inbox_seq
        self._report = report
        self._known: dict[SignalId, Signal] = {}
        self._settled: set[SignalId] = set()
        """Settled by this worker's commits, which a read that began earlier does not show."""
        self._rung = asyncio.Event()
        self._rung.set()
        self.seen_seq = inbox_seq

    @property
    def receipts(self) -> tuple[Signal, ...]:
        """The turn's signals as far as this worker knows of them."""
        return tuple(self._known.values())

    def ring(self) -> None:
        """Something may have been said; nobody says what."""
        self._rung.set()

    def notice_seq(self, inbox_seq: int) -> None:
        """The database's inbox_seq is at least this."""
        if inbox_seq > self._latest_seq:
            self._latest_seq = inbox_seq
            self._rung.set()

    def settle(self, changes: Sequence[SignalChange]) -> None:
        """A commit has settled these."""
        for change in changes:
            if (signal := self._known.get(change.signal_id)) is not None:
                self._keep_settled(replace(signal, state=change.state, round=change.round))

    def promote(self, promotion: Promotion) -> None:
        """A commit made these the next turn."""
        for signal_id in promotion.signal_ids:
            if (signal := self._known.get(signal_id)) is not None:
                promoted = replace(signal, state=SignalState.PROMOTED, promoted_to=promotion.turn_id)
                self._keep_settled(promoted)

    async def load_unseen(self) -> tuple[Signal, ...]:
        # The number is taken before the read: a signal that comes in between is read again rather than missed.
        covered = self._latest_seq
        signals = await self._patience.call(lambda: self._timelines.load_signals(self._principal, self._turn_id))
        self.seen_seq = max(self.seen_seq, covered)
        for signal in signals:
            if signal.id not in self._settled and self._known.get(signal.id) != signal:
                self._known[signal.id] = signal
                self._report(signal)
        return tuple(signal for signal in self._known.values() if signal.state is SignalState.ACCEPTED)

    def _keep_settled(self, signal: Signal) -> None:
        self._known[signal.id] = signal
        self._settled.add(signal.id)

    async def wait_for_control(self) -> None:
        while True:
            await self._rung.wait()
            if await self._has_control():
                # Whoever waits next must find it too, until a commit has answered it.
                self._rung.set()
                return

    async def _has_control(self) -> bool:
        # Clear before the read: a ring that comes during it must not be lost.
        self._rung.clear()
        try:
            unseen = await self.load_unseen()
        except BaseException:
            # Nobody has seen what this read was for; a wait is cancelled whenever the work beside it ends.
            self._rung.set()
            raise
        return any(signal.kind in CONTROL_KINDS for signal in unseen)
