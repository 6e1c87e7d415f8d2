"""The inbox of a running turn: a bell or the heartbeat wakes it, and it reads the signal rows not answered yet."""

import asyncio

from everturn.model.identity import Principal
from everturn.model.ids import SignalId, TurnId
from everturn.model.signals import Signal, SignalKind
from everturn.ports.timelines import Timelines

CONTROL_KINDS = frozenset({SignalKind.STEER, SignalKind.CANCEL})


class LeasedInbox:
    """Owned by one turn runner. `seen_seq` is the conversation's inbox_seq that the last read of the rows covers."""

    def __init__(self, timelines: Timelines, principal: Principal, turn_id: TurnId, inbox_seq: int) -> None:
        self._timelines = timelines
        self._principal = principal
        self._turn_id = turn_id
        self._latest_seq = inbox_seq
        self._answered: set[SignalId] = set()
        self._rung = asyncio.Event()
        self._rung.set()
        self.seen_seq = inbox_seq

    def ring(self) -> None:
        """Something may have been said; nobody says what."""
        self._rung.set()

    def notice_seq(self, inbox_seq: int) -> None:
        """The database's inbox_seq is at least this."""
        if inbox_seq > self._latest_seq:
            self._latest_seq = inbox_seq
            self._rung.set()

    def mark_answered(self, signal_ids: set[SignalId]) -> None:
        """A commit told what became of them."""
        self._answered |= signal_ids

    async def load_unseen(self) -> tuple[Signal, ...]:
        # The number is taken before the read: a signal that comes in between is read again rather than missed.
        covered = self._latest_seq
        signals = await self._timelines.load_signals(self._principal, self._turn_id)
        self.seen_seq = max(self.seen_seq, covered)
        return tuple(signal for signal in signals if signal.id not in self._answered)

    async def wait_for_control(self) -> None:
        while True:
            await self._rung.wait()
            # Clear before the read: a ring that comes during it must not be lost.
            self._rung.clear()
            unseen = await self.load_unseen()
            if any(signal.kind in CONTROL_KINDS for signal in unseen):
                # Whoever waits next must find it too, until a commit has answered it.
                self._rung.set()
                return
