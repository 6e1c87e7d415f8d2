"""Repeats the escape battery while a worker serves turns: settings of the machine can change after its start."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import structlog

from chat_proc.sandbox.port import Sandbox
from chat_proc.selftest.run import run_battery
from chat_proc.selftest.trials import BatteryReport, Finding
from everturn.core.loops import guarded
from everturn.core.metrics import BATTERY_LAST_RUN, BATTERY_RUNS
from everturn.queue.model import BatteryOutcome

_log = structlog.get_logger(__name__)

MAX_RUN_S: Final = 280.0
"""One program after the other takes about half a minute. The neighbour of the battery stays for five."""


class BatterySchedule:
    """One of the worker's tasks. Turns come first: a run waits until none runs here, for at most one interval.

    The first run comes at a random moment of the first interval, so that workers that were started together don't run
    it at the same time.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        interval_s: float,
        wait_idle: Callable[[], Awaitable[None]],
        note: Callable[[BatteryOutcome], None],
        run: Callable[[Sandbox], Awaitable[BatteryReport]] | None = None,
        first_s: float | None = None,
    ) -> None:
        """`wait_idle` returns when the worker has no turn. `note` gets the result of each run."""
        self._sandbox = sandbox
        self._interval_s = interval_s
        self._wait_idle = wait_idle
        self._note = note
        self._run = run or _run_slowly
        self._first_s = random.uniform(0, interval_s) if first_s is None else first_s  # noqa: S311 - no secret

    async def run(self) -> None:
        """Repeat until cancelled, which ends a run within 2 s."""
        await asyncio.sleep(self._first_s)
        while True:
            with guarded("battery"):
                await self.check()
            await asyncio.sleep(self._interval_s)

    async def check(self) -> None:
        """Run the battery and report its result, after a second run if an attempt succeeded.

        A lost sandbox or a slow machine can make an attempt look like a success. Only what succeeded in both runs is
        reported as such. Each run has its own time limit.
        """
        try:
            async with asyncio.timeout(self._interval_s):
                await self._wait_idle()
        except TimeoutError:
            _log.info("Running the escape battery beside turns: the worker was never idle", waited_s=self._interval_s)
        report = await self._run_in_time()
        if report is not None and (doubtful := _list_succeeded(report)):
            first = _describe(doubtful[0])
            _log.warning("Repeating the escape battery: an attempt succeeded", first=first, count=len(doubtful))
            report = combine(report, await self._run_in_time())
        if report is None:
            BATTERY_RUNS.labels("incomplete").inc()
            return
        report_result(report)
        self._note(BatteryOutcome(report.held, report.total, report.at))

    async def _run_in_time(self) -> BatteryReport | None:
        try:
            async with asyncio.timeout(MAX_RUN_S):
                return await self._run(self._sandbox)
        except TimeoutError:
            _log.error("The escape battery did not end in time", timeout_s=MAX_RUN_S)
            return None


async def _run_slowly(sandbox: Sandbox) -> BatteryReport:
    """One program at a time, beside the neighbour, which only waits."""
    return await run_battery(sandbox, at_once=1)


def combine(first: BatteryReport, second: BatteryReport | None) -> BatteryReport:
    """One report of two runs: what succeeded in only one of them has no answer. `second` is None if it did not end."""
    again = {(finding.group, finding.attempt): finding for finding in second.findings} if second else {}
    findings = tuple(_combine(finding, again.get((finding.group, finding.attempt))) for finding in first.findings)
    if second is None:
        return replace(first, findings=findings)
    return replace(second, findings=findings, took_s=first.took_s + second.took_s)


def _combine(first: Finding, second: Finding | None) -> Finding:
    runs = [first] if second is None else [first, second]
    succeeded = [finding for finding in runs if finding.answered and not finding.held]
    if len(succeeded) == 1:
        detail = f"it succeeded in only one run: {succeeded[0].detail}"
        return replace(succeeded[0], answered=False, detail=detail)
    return second if second is not None and second.answered else first


def _list_succeeded(report: BatteryReport) -> list[Finding]:
    return [finding for finding in report.missed() if finding.answered]


def _describe(finding: Finding) -> str:
    return f"{finding.group}: {finding.attempt} ({finding.detail})"


def report_result(report: BatteryReport) -> None:
    """Set the metrics, and log one line."""
    succeeded = _list_succeeded(report)
    unanswered = len(report.missed()) - len(succeeded)
    for state, count in (("denied", report.held), ("succeeded", len(succeeded)), ("unanswered", unanswered)):
        BATTERY_LAST_RUN.labels(state).set(count)
    about = {"launcher": report.launcher, "held": report.held, "total": report.total, "took_s": report.took_s}
    if report.holds:
        BATTERY_RUNS.labels("passed").inc()
        _log.info("Escape battery passed", **about)
        return
    BATTERY_RUNS.labels("failed" if succeeded else "incomplete").inc()
    first = _describe((succeeded or report.missed())[0])
    text = "Escape battery failed" if succeeded else "Some attempts of the escape battery could not be made"
    _log.error(text, first=first, **about)
