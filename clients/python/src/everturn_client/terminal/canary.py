"""`everturn canary`: prints a line for each message of the canary, and serves what it counts."""

import asyncio
import signal
import time
from contextlib import AsyncExitStack, aclosing
from functools import partial

from prometheus_client import CollectorRegistry

from everturn.core.page_server import build_metrics_page, open_page_server
from everturn_client.canary import Canary, Reading
from everturn_client.metrics import CanaryMetrics
from everturn_client.terminal.screen import Screen


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
