"""Reads the events of a reply up to its end, and lets other tasks of the event loop run meanwhile."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextvars import ContextVar
from typing import Final, TypeVar

from everturn.core.cancellation import keep_cancellation
from everturn.models.port import ModelFailed

REPLY_TIMEOUT_S: Final = 900.0
"""How long one reply may take."""
MAX_PIECE_CHARS = 2_048
"""A longer piece is split: processing one part takes at most about 4 ms, whatever its content."""
MAX_HELD_S = 0.005
"""How long a task may hold the event loop, which runs the other turns of the worker and its heartbeat."""
USAGE_WAIT_S = 2.0
"""How long the rest of a reply is awaited after its finish reason: usage follows within milliseconds, if at all."""
CLOSE_WAIT_S = 0.1
"""How long the end of the HTTP response is awaited after the last event. Only then can the connection be used again."""
MAX_EMPTY_EVENTS = 100_000
"""Events in a row that may carry nothing. Some servers send an empty one for each hidden token, so this is more than
the longest reply has tokens. An SDK reads so many in about 10 s."""

report_bytes: ContextVar[Callable[[], None]] = ContextVar("report_bytes", default=lambda: None)
"""Called in the task that reads a reply, whenever a part of its HTTP body arrives: the SDKs hide comments and events
without content, by which a server shows that it is at work."""

T = TypeVar("T")


class TimeSlice:
    """The time for which a task holds the event loop, although what it waits for is always there."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()

    async def give_way(self) -> None:
        """Let other tasks run if MAX_HELD_S are over."""
        if self._clock() - self._began_s > MAX_HELD_S:
            await asyncio.sleep(0)
            self._began_s = self._clock()


class StreamedReply:
    """What is known of a reply whose events are being read. The reader of each protocol fills it."""

    def __init__(self) -> None:
        self.chars: int = 0
        """Of texts, reasoning and calls so far."""
        self.response_model: str | None = None
        self.response_id: str | None = None
        self.has_events = False
        self.wait_s: float | None = None
        """How long more events are awaited; None until the reply has its finish reason."""

    def end_within(self, wait_s: float) -> None:
        """Wait at most this long for more events, because the reply is complete."""
        self.wait_s = wait_s if self.wait_s is None else min(self.wait_s, wait_s)

    async def read_events(
        self, stream: AsyncIterable[T], damages: tuple[type[Exception], ...]
    ) -> AsyncGenerator[T, None]:
        """The events up to the end of the reply, or of the stream. The caller adds each to this reply before the next.

        `damages` are what the SDK raises for a lost connection and for damaged events. A complete reply stays complete
        despite them, and if its server keeps the connection open: only content makes this wait longer then. Before
        that, raises what the SDK raises, and ModelFailed.
        """
        events, loop = aiter(stream), asyncio.get_running_loop()
        before: tuple[int, float | None] = (0, None)
        deadline_s: float | None = None
        empty = 0
        # An SDK that fails when it is cancelled must not look like a lost connection.
        with keep_cancellation():
            while deadline_s is None or loop.time() < deadline_s:
                try:
                    async with asyncio.timeout_at(deadline_s):
                        event = await anext(events)
                except StopAsyncIteration:
                    return
                except (TimeoutError, ModelFailed, *damages):
                    if deadline_s is None:
                        raise
                    return
                self.has_events = True
                yield event
                empty += 1
                if (self.chars, self.wait_s) != before:
                    before, empty = (self.chars, self.wait_s), 0
                    deadline_s = None if self.wait_s is None else loop.time() + self.wait_s
                if empty > MAX_EMPTY_EVENTS:
                    raise ModelFailed(
                        f"The model's server sent more than {MAX_EMPTY_EVENTS} events without content.",
                        kind="invalid_reply",
                    )


def split_text(text: str) -> list[str]:
    """A text in parts that pieces can have."""
    return [text[at : at + MAX_PIECE_CHARS] for at in range(0, max(1, len(text)), MAX_PIECE_CHARS)]
