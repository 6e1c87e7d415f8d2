"""Keeps one part alive: starts it again when it dies, with growing delays, and says so."""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Callable

from everturn.errors import EverturnError
from everturn_local.supervision.parts import Part
from everturn_local.supervision.restarts import build_restart_delay_s

MAX_DEATHS = 32


async def run_keeper(
    part: Part,
    *,
    is_on: Callable[[], bool],
    report: Callable[[str], None],
    on_restart: Callable[[], None] = lambda: None,
) -> None:
    """Runs until cancelled, or until the part dies while `is_on()` is false."""
    deaths: deque[float] = deque(maxlen=MAX_DEATHS)
    while True:
        code = await part.wait_exit()
        if not is_on():
            return
        deaths.append(time.monotonic())
        delay_s = build_restart_delay_s(deaths, deaths[-1])
        report(f"{part.name} ended ({render_exit(code)}); starting it again in {delay_s:.1f} s")
        await asyncio.sleep(delay_s)
        try:
            await part.start()
        except (EverturnError, OSError) as error:
            report(f"{part.name} did not start: {error}")
        else:
            report(f"{part.name} runs again")
            on_restart()


def render_exit(code: int) -> str:
    """An exit code in words; negative ones are signals."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
