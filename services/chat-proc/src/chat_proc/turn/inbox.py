"""The inbox of a running turn: a bell or the heartbeat wakes it, and it reads the signal rows not answered yet."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from chat_proc.turn.patience import Patience
from everturn.model.commits import Promotion, SignalChange
from everturn.model.identity import Principal
from everturn.model.ids import SignalId, TurnId
from everturn.model.signals import CONTROL_KINDS, Signal, SignalState
from everturn.ports.timelines import Timelines


class LeasedInbox:
    """Owned by one turn runner. `seen_seq` is the conversation's inbox_seq that the last read of the rows covers."""

    def __init__(
        self,
        timelines: Timelines,
        principal: Principal,
        turn_id: TurnId,
        inbox_seq: int,
        *,
        patience: Patience | None = None,
    ) -> None:
        self._timelines = timelines
        self._principal = principal
        self._turn_id = turn_id
        self._patience = patience or Patience()
        self._latest_seq = inbox_seq
        self._unseen: dict[SignalId, Signal] = {}
        self._settled: dict[SignalId, Signal] = {}
        self._rung = asyncio.Event()
        self._rung.set()
        self.seen_seq = inbox_seq

    @property
    def receipts(self) -> tuple[Signal, ...]:
        """The turn's signals as far as this worker knows of them: settled by its commits, or unseen still."""
        return (*self._settled.values(), *self._unseen.values())

    def ring(self) -> None:
        """Something may have been said; nobody says what."""
        self._rung.set()

    def notice_seq(self, inbox_seq: int) -> None:
        """The database's inbox_seq is at least this."""
        if inbox_seq > self._latest_seq:
            self._latest_seq = inbox_seq
            self._rung.set()

    def settle(self, changes: Sequence[SignalChange]) -> None:
        """A commit told what became of these."""
        for change in changes:
            if (signal := self._unseen.pop(change.signal_id, None)) is not None:
                self._settled[signal.id] = replace(signal, state=change.state, round=change.round)

    def promote(self, promotion: Promotion) -> None:
        """A commit made these the next turn."""
        for signal_id in promotion.signal_ids:
            if (signal := self._unseen.pop(signal_id, None)) is not None:
                self._settled[signal_id] = replace(signal, state=SignalState.PROMOTED, promoted_to=promotion.turn_id)

    async def load_unseen(self) -> tuple[Signal, ...]:
        # The number is taken before the read: a signal that comes in between is read again rather than missed.
        covered = self._latest_seq
        signals = await self._patience.call(lambda: self._timelines.load_signals(self._principal, self._turn_id))
        self.seen_seq = max(self.seen_seq, covered)
        self._unseen = {signal.id: signal for signal in signals if signal.id not in self._settled}
        return tuple(self._unseen.values())

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
