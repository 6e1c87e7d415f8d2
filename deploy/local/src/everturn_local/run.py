"""`make run`: starts the platform, shows the banner and errors, and stops everything on Ctrl-C."""

import asyncio
import shlex
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from everturn.core.errors import EverturnError
from everturn_local.banner import EXAMPLES, Access, render_banner
from everturn_local.home import Home, check_unused
from everturn_local.images.choice import choose_containers
from everturn_local.ports import is_port_free
from everturn_local.readiness import POLL_S, Readiness, load_readiness, reach_url
from everturn_local.servers.clamd import choose_clamd
from everturn_local.settings import LocalSettings
from everturn_local.supervision.logs import LogWatch
from everturn_local.supervision.platform import Platform
from everturn_local.supervision.service import STOP_LIMIT_S
from everturn_local.web.choice import choose_web

WATCH_INTERVAL_S = 0.5
EXIT_INTERRUPTED = 130
_Result = TypeVar("_Result")


class PortInUse(EverturnError):
    """The port is in use by another program."""


async def run_platform(
    settings: LocalSettings, environment: Mapping[str, str], *, examples: tuple[str, ...] = EXAMPLES
) -> int:
    """Run with these variables until SIGINT or SIGTERM; returns the exit code. A second signal during the stop ends
    everything at once. `examples` are commands to try."""
    # In this order: a second run on the same home would find the port used by the first one, and must report that
    # instead.
    check_unused(Home(settings.everturn_home.absolute()))
    check_port(settings)
    started = time.monotonic()
    signals = StopSignals()
    home = Home(settings.everturn_home.absolute())
    containers = await asyncio.to_thread(choose_containers, environment, home.broker_socket)
    clamd = choose_clamd(environment)
    web = await signals.try_result(choose_web(environment, report=show_progress))
    if web is None:
        return EXIT_INTERRUPTED
    platform = Platform(
        settings.everturn_home,
        port=settings.port,
        host=settings.host,
        env={**environment, **web.env},
        containers=containers.chosen,
        clamd=clamd,
        report=show_progress,
    )
    if not await signals.run_unless_signalled(platform.start()):
        show_progress("interrupted while starting; everything is stopped")
        return EXIT_INTERRUPTED

    def announce() -> None:
        banner = render_banner(
            platform.reports,
            containers=containers,
            clamd=clamd,
            web=web,
            home=platform.home.root,
            start_s=time.monotonic() - started,
            access=Access(settings.mode == "development", _build_operate_command(settings), examples),
        )
        print(banner, flush=True)

    await signals.run_unless_signalled(_run_started(platform, announce))
    show_progress(f"stopping; running turns get up to {STOP_LIMIT_S:.0f} s (Ctrl-C again stops immediately)")
    if not await signals.run_unless_signalled(platform.stop()):
        await platform.stop(limit_s=0)
    show_progress("stopped")
    return 0


def check_port(settings: LocalSettings) -> None:
    """Raises PortInUse. Port 0 means any."""
    if settings.port and not is_port_free(settings.port, settings.host):
        raise PortInUse(f"{settings.host}:{settings.port}. Stop that program, or choose another: PORT=8090 make run")


class StopSignals:
    """Turns SIGINT and SIGTERM into cancellation of the awaited work."""

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sig, self._arrived.set)

    async def run_unless_signalled(self, work: Coroutine[Any, Any, None]) -> bool:
        """True if the work ended by itself; on a signal it is cancelled and awaited, and the result is False."""
        return await self._settle(asyncio.create_task(work))

    async def try_result(self, work: Coroutine[Any, Any, _Result]) -> _Result | None:
        """The result of the work; None when a signal ended it."""
        working = asyncio.create_task(work)
        return working.result() if await self._settle(working) else None

    async def _settle(self, working: asyncio.Task[Any]) -> bool:
        arriving = asyncio.create_task(self._arrived.wait())
        await asyncio.wait({working, arriving}, return_when=asyncio.FIRST_COMPLETED)
        signalled = not working.done()
        for task in (arriving, working):
            task.cancel()
        await asyncio.wait({working, arriving})
        self._arrived.clear()
        if working.cancelled():
            return False
        working.result()
        return not signalled


def _build_operate_command(settings: LocalSettings) -> str:
    """The command for a terminal without this environment."""
    home = settings.everturn_home.absolute()
    usual = LocalSettings.model_fields["everturn_home"].default
    return "make operate" if home == usual else f"EVERTURN_HOME={shlex.quote(str(home))} make operate"


async def _run_started(platform: Platform, announce: Callable[[], None]) -> None:
    """Show errors and loaded bundles, and call `announce` once, when the platform is ready."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_run_log_watch(platform))
        workers = sum(name.startswith("worker-") for name in platform.reports)
        url = reach_url(platform.urls[0])
        await wait_until_ready(lambda: load_readiness(url, workers), report=show_progress)
        announce()


async def wait_until_ready(check: Callable[[], Readiness], *, report: Callable[[str], None]) -> None:
    """Wait until nothing is missing. What is missing is reported if it persists, and again when it changes."""
    reported, is_first = "", True
    while (found := await asyncio.to_thread(check)).missing:
        # Workers register themselves a moment after their start.
        if not is_first and found.missing != reported:
            report(f"not ready yet: {found.missing}")
            reported = found.missing
        is_first = False
        await asyncio.sleep(POLL_S)
    for failing in found.failing:
        report(f"running without {failing}")


async def _run_log_watch(platform: Platform) -> None:
    watches = [LogWatch(name, platform.home.logs / f"{name}.log") for name in platform.reports]
    while True:
        await asyncio.sleep(WATCH_INTERVAL_S)
        for watch in watches:
            for line in watch.load_new():
                show_progress(line)


def show_progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)
