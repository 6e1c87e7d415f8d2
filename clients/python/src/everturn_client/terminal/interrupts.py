"""Ctrl-C while a turn runs: the first press cancels the turn, the second exits."""

import asyncio
import signal
from types import TracebackType
from typing import Self


class Interrupts:
    """Handles SIGINT while it is entered: the first press sets `first`, the second cancels `task`."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self.first = asyncio.Event()

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    def _take(self) -> None:
        if self.first.is_set():
            self._task.cancel()
        self.first.set()
