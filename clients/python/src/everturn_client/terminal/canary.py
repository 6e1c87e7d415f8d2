"""`everturn canary`: prints a line for each message of the canary, and counts it for Prometheus."""

import asyncio
import signal
import time
from contextlib import AsyncExitStack, aclosing
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from everturn.core.page_server import build_metrics_page, open_page_server
from everturn_client.canary import Canary, Outcome, Reading
from everturn_client.terminal.screen import Screen

OUTCOMES: tuple[Outcome, ...] = ("ok", "rejected", "failed", "late", "deaf")
_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class CanaryMetrics:
    """What the canary saw. All outcomes are there from the start, so that an alert sees the first of its kind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._turns = Counter(
            "everturn_canary_turns",
            "Messages of the canary, by outcome: ok, rejected, failed, late, or deaf (it ended, and no event came).",
            ["outcome"],
            registry=registry,
        )
        self._stage_seconds = Histogram(
            "everturn_canary_stage_seconds",
            "Time from the canary's request until it saw a stage of the turn: accepted, started, answering or ended.",
            ["stage"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._succeeded_at = Gauge(
            "everturn_canary_success_timestamp_seconds",
            "When the canary last got a complete answer, in Unix time; before the first one, when it started.",
            registry=registry,
        )
        self._succeeded_at.set(time.time())
        for outcome in OUTCOMES:
            self._turns.labels(outcome)

    def take(self, reading: Reading) -> None:
        self._turns.labels(reading.outcome).inc()
        for stage, seconds in reading.seen_s.items():
            self._stage_seconds.labels(stage).observe(seconds)
        if reading.outcome == "ok":
            self._succeeded_at.set(time.time())


async def run_canary(
    canary: Canary, screen: Screen, *, every_s: float, once: bool, address: tuple[str, int] | None
) -> bool:
    """Send messages until the process is interrupted, or one with `once`; returns whether the last one went well.

    A message that takes longer than `every_s` delays the next one. Raises CantListen, OutputClosed.
    """
    metrics = CanaryMetrics(CollectorRegistry())
    if (task := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(aclosing(canary))
        if address is not None:
            pages = {"/metrics": partial(build_metrics_page, metrics.registry)}
            url = await stack.enter_async_context(open_page_server(*address, pages, setting="--listen"))
            screen.say(f"Metrics are at {url}/metrics.")
        while True:
            begun_s = time.monotonic()
            reading = await canary.read()
            metrics.take(reading)
            screen.say(render_reading(reading), "output")
            if once:
                return reading.outcome == "ok"
            await asyncio.sleep(max(0.0, begun_s + every_s - time.monotonic()))


def render_reading(reading: Reading) -> str:
    """One line: the time of day, the outcome, the stages, and what went wrong."""
    stages = ", ".join(f"{stage} {seconds:.3f} s" for stage, seconds in reading.seen_s.items())
    words = (time.strftime("%H:%M:%S"), f"{reading.outcome:<8}", stages, reading.detail)
    return "  ".join(word for word in words if word)
