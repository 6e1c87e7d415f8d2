"""The engine's events about pairs while they run: enforced limits and ends; one stream for all pairs."""

import asyncio
from typing import Final

import structlog

from everturn.execution.messages import LimitName
from exec_supervisor.broker.engine import EngineDown, EngineRefused, PairEngine, PairEvent

_log = structlog.stdlib.get_logger()

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0


class PairEvents:
    """The events of one pair."""

    def __init__(self) -> None:
        self.hits: tuple[LimitName, ...] = ()
        self.executor_ended = asyncio.Event()
        self.executor_exit = ""
        self.pair_ended = asyncio.Event()

    def record(self, event: PairEvent) -> None:
        """Record an event; idempotent."""
        match event.what:
            case "memory_limit":
                self.hits = ("memory",)
            case "executor_ended":
                self.executor_exit = event.exit_code
                self.executor_ended.set()
            case "pair_ended":
                self.pair_ended.set()


class EventWatch:
    """Dispatches the engine's events to their pairs, and reconnects when the engine was unavailable."""

    def __init__(self, engine: PairEngine, connected: asyncio.Event) -> None:
        """`connected` is set whenever the stream has begun: the engine may have been unavailable before."""
        self._engine = engine
        self._connected = connected
        self._pair_events: dict[str, PairEvents] = {}

    def watch(self, pair: str) -> PairEvents:
        """Start to record a pair's events. Call it before the pair is started."""
        pair_events = self._pair_events[pair] = PairEvents()
        return pair_events

    def forget(self, pair: str) -> None:
        self._pair_events.pop(pair, None)

    async def run(self) -> None:
        """Read the stream until cancelled, and again after each interruption."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with self._engine.watch() as events:
                    self._connected.set()
                    pause_s = FIRST_PAUSE_S
                    async for event in events:
                        if pair_events := self._pair_events.get(event.pair):
                            pair_events.record(event)
            except (EngineDown, EngineRefused) as error:
                _log.warning("Lost the event stream of the execution engine", detail=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
