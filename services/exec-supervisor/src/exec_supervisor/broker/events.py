"""The engine's events about pairs while they run: enforced limits, ends, removals; one stream for all pairs."""

import asyncio
import contextlib
import time
from typing import Final

import structlog

from everturn.execution.messages import LimitName
from exec_supervisor.broker.bodies import LABEL_BROKER, LABEL_PAIR, LABEL_ROLE
from exec_supervisor.broker.docker_engine import CONNECTED, Engine, EngineDown, EngineEvent, EngineRefused

_log = structlog.stdlib.get_logger()

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0


class PairEvents:
    """The events of one pair's containers."""

    def __init__(self) -> None:
        self.hits: tuple[LimitName, ...] = ()
        self.executor_died = asyncio.Event()
        self.supervisor_died = asyncio.Event()
        self.executor_gone = asyncio.Event()
        self.supervisor_gone = asyncio.Event()
        self.executor_exit = ""

    def record(self, event: EngineEvent) -> None:
        """Record an event; idempotent."""
        executor = event.attributes.get(LABEL_ROLE) == "executor"
        match event.action:
            case "oom" if executor:
                self.hits = ("memory",)
            case "die":
                if executor:
                    self.executor_exit = event.attributes.get("exitCode", "")
                (self.executor_died if executor else self.supervisor_died).set()
            case "destroy":
                (self.executor_gone if executor else self.supervisor_gone).set()
            case _:
                pass

    async def wait_until_gone(self) -> None:
        """Return when both containers have been removed."""
        await self.executor_gone.wait()
        await self.supervisor_gone.wait()


class EventWatch:
    """Dispatches the engine's events to their pairs, and reconnects when the engine was unavailable."""

    def __init__(self, engine: Engine, broker_id: str, connected: asyncio.Event) -> None:
        """`connected` is set whenever the stream has begun: the engine may have been unavailable before."""
        self._engine = engine
        self._connected = connected
        self._label = f"{LABEL_BROKER}={broker_id}"
        self._pair_events: dict[str, PairEvents] = {}

    def watch(self, pair: str) -> PairEvents:
        """Start to record a pair's events. Call it before the pair's first container is created."""
        pair_events = self._pair_events[pair] = PairEvents()
        return pair_events

    def forget(self, pair: str) -> None:
        self._pair_events.pop(pair, None)

    async def run(self) -> None:
        """Read the stream until cancelled. After an interruption it resumes from the last event."""
        since_s, pause_s = time.time(), FIRST_PAUSE_S
        while True:
            try:
                async with contextlib.aclosing(self._engine.watch(self._label, since_s)) as events:
                    async for event in events:
                        since_s, pause_s = max(since_s, event.at_s), FIRST_PAUSE_S
                        self._dispatch(event)
            except (EngineDown, EngineRefused) as error:
                _log.warning("Lost the event stream of the container engine", detail=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _dispatch(self, event: EngineEvent) -> None:
        if event.action == CONNECTED:
            self._connected.set()
        elif pair_events := self._pair_events.get(event.attributes.get(LABEL_PAIR, "")):
            pair_events.record(event)
