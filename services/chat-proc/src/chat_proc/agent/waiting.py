"""Tells clients that a turn waits for its model: after some seconds of silence, and before each repeated call."""

import asyncio
from types import TracebackType
from typing import Final

from chat_proc.agent.open_turn import OpenTurn
from everturn.ports.language_model import ModelPiece, ModelRetry
from everturn.wire.events import ChatPhase

FIRST_AFTER_S: Final = 5.0
"""Silence that needs no word: most models begin sooner."""
EVERY_S: Final = 10.0


class WaitingNotice:
    """Owned by one model call, and active inside its `with` block. It costs one timer, not a task for each piece."""

    def __init__(
        self, turn: OpenTurn, round_number: int, *, first_after_s: float = FIRST_AFTER_S, every_s: float = EVERY_S
    ) -> None:
        self._turn = turn
        self._round = round_number
        self._first_after_s = first_after_s
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._is_shown = False

    def __enter__(self) -> "WaitingNotice":
        self._timer = self._loop.call_later(self._first_after_s, self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def note(self, piece: ModelPiece) -> None:
        """A piece of the reply has come, or a call is about to be repeated."""
        self._heard_at = self._loop.time()
        if isinstance(piece, ModelRetry):
            self._heard_at += piece.wait_s
            retry_in_ms = int(piece.wait_s * 1000)
            phase = ChatPhase(
                phase="model_retrying",
                retry_in_ms=retry_in_ms,
                attempt=piece.attempt,
                max_attempts=piece.max_attempts,
                reason=piece.reason,
            )
            self._turn.emit(phase, self._round)
            self._is_shown = True
        elif self._is_shown:
            self._is_shown = False
            self._turn.emit(ChatPhase(phase="model_replying"), self._round)

    def _look(self) -> None:
        silent_s = self._loop.time() - self._heard_at
        if silent_s >= self._first_after_s:
            self._is_shown = True
            self._turn.emit(ChatPhase(phase="model_waiting", waited_ms=int(silent_s * 1000)), self._round)
            delay_s = self._every_s
        else:
            delay_s = self._first_after_s - silent_s
        self._timer = self._loop.call_later(max(delay_s, 0.01), self._look)
