"""Decides whether programs may run on a launcher: only if every attempt of the escape battery was denied.

`python -m chat_proc battery` runs the battery for an operator.
"""

import asyncio
import contextlib
import json
import math
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from chat_proc.sandbox.launching import TRIAL, SupervisedSandbox
from chat_proc.sandbox.opening import LAUNCHERS, ExecutionChoice, OpenedSandbox, open_sandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.remote.absent import ELSEWHERE
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisorFailed
from chat_proc.selftest.run import run_battery
from chat_proc.selftest.trials import (
    BatteryReport,
    render_lines,
    render_report,
    render_table,
)
from chat_proc.settings import LauncherName
from everturn.execution.profiles import BATTERY_PROFILE, DEFAULT_PROFILE
from everturn.queue.model import BatteryOutcome, WorkerPresence

_log = structlog.get_logger(__name__)

RunBattery = Callable[[SupervisedSandbox], Awaitable[BatteryReport]]

NOT_HELD: Final = 1
AGAIN_S: Final = 60.0
"""After a battery with attempts that could not be made, programs are refused for so long before it is run again."""


class HolesFound(SandboxUnavailable):
    """Not every attempt of the escape battery was denied, so programs are not run here."""

    def __init__(self, reason: str, outcome: BatteryOutcome) -> None:
        super().__init__(reason, "make doctor")
        self.outcome = outcome


async def pass_gate(
    opened: OpenedSandbox | SandboxUnavailable, *, run: RunBattery = run_battery
) -> OpenedSandbox | SandboxUnavailable:
    """Run the battery. The same launcher with the result added to its reason, or why it is not offered.

    There is nothing to try where no launcher is, and not yet where one can't start anything: that one is tested before
    its first program.
    """
    if isinstance(opened, SandboxUnavailable) or opened.sandbox.posture.launcher == ELSEWHERE:
        return opened
    if opened.silence:
        _log.warning("The escape battery is run before the first program", reason=opened.silence)
        why = f"{opened.why}; escape battery: nothing was tried yet"
        return replace(opened, sandbox=opened.sandbox.with_launcher(LateGate(opened.sandbox, run)), why=why)
    report = await run(opened.sandbox)
    outcome = BatteryOutcome(report.held, report.total, report.at)
    if report.holds:
        _log.info("Escape battery passed", launcher=report.launcher, held=report.held, took_s=report.took_s)
        why = f"{opened.why}; escape battery: {report.held} of {report.total} attempts denied"
        return replace(opened, why=why, battery=outcome)
    _log.error("Escape battery failed", launcher=report.launcher, held=report.held, total=report.total)
    return HolesFound(explain_holes(report), outcome)


def explain_holes(report: BatteryReport) -> str:
    """Why programs don't run on a launcher that has not denied every attempt."""
    succeeded = [finding for finding in report.missed() if finding.answered]
    first = (succeeded or report.missed())[0]
    what = "The first that succeeded" if succeeded else "None succeeded; the first without an answer"
    return (
        f"EXECUTION_GATE=battery, and {report.launcher} denied only {report.held} of {report.total} escape attempts. "
        f"{what}: {first.attempt} ({first.detail})."
    )


class LateGate:
    """Implements Launcher for a sandbox that could not be tested when the worker started. The battery is run before the
    first program; other programs wait for it."""

    def __init__(self, sandbox: SupervisedSandbox, run: RunBattery) -> None:
        self._sandbox = sandbox
        self._run = run
        self._lock = asyncio.Lock()
        self._passed = False
        self._refusal = ""
        self._again_at_s = 0.0

    @property
    def keeps_warm(self) -> bool:
        return self._sandbox.launcher.keeps_warm

    @contextlib.asynccontextmanager
    async def take(self, profile: str, run_name: str) -> AsyncGenerator[BootedSupervisor]:
        if profile != BATTERY_PROFILE and not self._passed:
            async with self._lock:
                await self._pass()
        async with self._sandbox.launcher.take(profile, run_name) as supervisor:
            yield supervisor

    async def _pass(self) -> None:
        """Raises SupervisorFailed until the battery has passed, and what `take` of the launcher raises."""
        if self._passed:
            return
        if time.monotonic() >= self._again_at_s:
            # Where nothing can be started, nothing is tried.
            async with self._sandbox.launcher.take(DEFAULT_PROFILE, TRIAL):
                pass
            report = await self._run(self._sandbox)
            self._passed = report.holds
            if self._passed:
                _log.info("Escape battery passed", launcher=report.launcher, held=report.held, took_s=report.took_s)
                return
            _log.error("Escape battery failed", launcher=report.launcher, held=report.held, total=report.total)
            self._refusal = explain_holes(report)
            got_through = any(finding.answered for finding in report.missed())
            self._again_at_s = math.inf if got_through else time.monotonic() + AGAIN_S
        raise SupervisorFailed(self._refusal)


def build_presence(
    worker_id: str, opened: OpenedSandbox | SandboxUnavailable, slots: int, extra_slots: int = 0
) -> WorkerPresence:
    """What a worker publishes about itself."""
    match opened:
        case OpenedSandbox():
            return WorkerPresence(
                worker_id, opened.sandbox.posture.launcher, opened.battery, slots, extra_slots=extra_slots
            )
        case HolesFound():
            return WorkerPresence(worker_id, "", opened.outcome, slots, extra_slots=extra_slots)
        case SandboxUnavailable():
            return WorkerPresence(worker_id, "", None, slots, extra_slots=extra_slots)


async def run_command(choice: ExecutionChoice, *, as_json: bool, table: Path | None = None) -> int:
    """Return exit status 1 if an attempt got through. An unavailable launcher is reported, but is no failure.

    `table` is the file for the documentation page.
    """
    reports: list[BatteryReport] = []
    for mode in list_modes(choice):
        async with open_sandbox(replace(choice, mode=mode)) as opened:
            if isinstance(opened, SandboxUnavailable):
                _print(_render_absent(mode, opened, as_json=as_json))
                continue
            if opened.silence:
                # Nothing can be started, so nothing was tried: attempts that fail for this reason say nothing.
                _print(
                    _render_absent(
                        mode, SandboxUnavailable(f"There is nothing to try: {opened.silence}"), as_json=as_json
                    )
                )
                continue
            report = await run_battery(opened.sandbox)
        _print(render_lines(report) if as_json else [render_report(report)])
        reports.append(report)
    if table is not None:
        await asyncio.to_thread(table.write_text, render_table(reports), encoding="utf-8")
    return 0 if all(report.holds for report in reports) else NOT_HELD


def list_modes(choice: ExecutionChoice) -> tuple[LauncherName, ...]:
    """The launchers to test: all of them, or the configured one."""
    match choice.mode:
        case "off":
            return ()
        case "auto":
            return tuple(LAUNCHERS)
        case launcher:
            return (launcher,)


def _render_absent(mode: str, unavailable: SandboxUnavailable, *, as_json: bool) -> list[str]:
    fact = {"launcher": mode, "unavailable": unavailable.reason, "remedy": unavailable.remedy}
    return [json.dumps(fact) if as_json else f"{mode}: not available. {unavailable}"]


def _print(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
