"""The line to the worker: events go up in groups, the stop comes down, and the state is saved from time to time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, TypeVar, cast

from driver.state import State

GROUP_S: Final = 0.1
"""How long an event waits for others."""
MAX_EVENTS: Final = 200
"""Of one group."""
MAX_TEXT_CHARS: Final = 20_000
"""Of one event; a longer text is cut."""
PART_BYTES: Final = 512 << 10
SAVE_EVERY_S: Final = 10.0
SAVE_SHARE: Final = 0.1
"""The part of the time that saving may take."""
STOP_WITHIN_S: Final = 10.0

Event = dict[str, Any]
_T = TypeVar("_T")


class Worker(Protocol):
    """What the worker does for the driver."""

    def report(self, *, events: list[Event]) -> Awaitable[object]: ...
    def ask(self, *, tool: str, title: str, input: dict[str, Any]) -> Awaitable[object]: ...
    def save(self, *, part: bytes, is_last: bool) -> Awaitable[object]: ...
    def wait(self) -> Awaitable[object]: ...


@dataclass(frozen=True, slots=True)
class Order:
    """The task. `session` is what the agent called the session to continue; empty for a new one."""

    runtime: str
    task: str
    session: str
    model: str
    instructions: str


class Link:
    """One task owns it: `watch` runs beside the agent, which calls the other methods."""

    def __init__(self, worker: Worker, state: State) -> None:
        self._worker = worker
        self._state = state
        self._waiting: list[Event] = []
        self._bell = asyncio.Event()
        self._saving = asyncio.Lock()
        self._saved_at_s = time.monotonic()
        self._pause_s = SAVE_EVERY_S
        self.session = ""
        self.stopping = asyncio.Event()
        """Set when the agent has to stop."""

    async def __aenter__(self) -> Self:
        self._sender = asyncio.create_task(self._send())
        self._listener = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.cancel()
        self._sender.cancel()
        await asyncio.gather(self._listener, self._sender, return_exceptions=True)
        await self._save()
        await self._flush()

    async def watch(self, running: asyncio.Task[str]) -> None:
        """Wait for the agent, which gets some time to end after a stop. Then report how it ended."""
        stopping = asyncio.create_task(self.stopping.wait())
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not running.done():
            await asyncio.wait((running,), timeout=STOP_WITHIN_S)
            running.cancel()
        try:
            self.tell("ended", text=await running)
        except asyncio.CancelledError:
            self.tell("ended", text="")
        except Exception as failure:  # noqa: BLE001 - the agent's edge
            self.tell("failed", text=f"{type(failure).__name__}: {failure}")

    def tell(self, kind: str, **fields: object) -> None:
        """Send an event soon."""
        cut = {name: value[:MAX_TEXT_CHARS] if isinstance(value, str) else value for name, value in fields.items()}
        last = self._waiting[-1] if self._waiting else {}
        if kind in ("text", "thinking") and last.get("kind") == kind and len(last["text"]) < MAX_TEXT_CHARS:
            last["text"] += cut["text"]
        else:
            self._waiting.append({"kind": kind, **cut})
        self._bell.set()

    def note_session(self, session: str) -> None:
        """What the agent calls its session."""
        if session and session != self.session:
            self.session = self._state.session = session

    async def ask(self, tool: str, title: str, given: dict[str, Any]) -> tuple[bool, str]:
        """Whether the agent may do this, and why not."""
        await self._flush()
        answer = cast("dict[str, Any]", await self._worker.ask(tool=tool, title=title, input=given))
        return bool(answer["allow"]), str(answer["message"])

    async def checkpoint(self) -> None:
        """Save the state if something was done since, and not too often."""
        if time.monotonic() - self._saved_at_s >= self._pause_s:
            await self._save()

    async def _save(self) -> None:
        async with self._saving:
            began_s = time.monotonic()
            try:
                await self._send_state()
            except Exception as failure:  # noqa: BLE001 - the next state is saved again, and the agent goes on
                self._state.forget_packed()
                self.tell("notice", text=f"The work could not be saved: {failure}")
            self._saved_at_s = time.monotonic()
            self._pause_s = max(SAVE_EVERY_S, (self._saved_at_s - began_s) / SAVE_SHARE)

    async def _send_state(self) -> None:
        if (data := await asyncio.to_thread(self._state.pack)) is None:
            return
        for at in range(0, len(data), PART_BYTES):
            part = data[at : at + PART_BYTES]
            await self._worker.save(part=part, is_last=at + PART_BYTES >= len(data))

    async def _send(self) -> None:
        while True:
            await self._bell.wait()
            await asyncio.sleep(GROUP_S)
            await self._flush()

    async def _flush(self) -> None:
        self._bell.clear()
        while self._waiting:
            group, self._waiting = self._waiting[:MAX_EVENTS], self._waiting[MAX_EVENTS:]
            await self._worker.report(events=group)

    async def _listen(self) -> None:
        """Wait for the stop. Each question is answered within a minute."""
        answer: Literal["", "stop"] = ""
        while answer != "stop":
            answer = cast("Literal['', 'stop']", await self._worker.wait())
        self.stopping.set()


async def stop_with(link: Link, work: Awaitable[_T], interrupt: Callable[[], Awaitable[object]]) -> _T:
    """What the work returns, which is interrupted once if the agent has to stop."""
    working, stopping = asyncio.ensure_future(work), asyncio.create_task(link.stopping.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await interrupt()
        return await working
    finally:
        stopping.cancel()
        working.cancel()
