"""Decides whether programs may run on a launcher: only if every attempt of the escape battery was denied.

`python -m chat_proc battery` runs the battery for an operator.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.opening import LAUNCHERS, ExecutionChoice, OpenedSandbox, open_sandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.selftest.run import run_battery
from chat_proc.selftest.trials import (
    BatteryReport,
    render_lines,
    render_report,
    render_table,
)
from chat_proc.settings import LauncherName
from everturn.queue.model import BatteryOutcome, WorkerPresence

_log = structlog.get_logger(__name__)

RunBattery = Callable[[SupervisedSandbox], Awaitable[BatteryReport]]

NOT_HELD: Final = 1


class HolesFound(SandboxUnavailable):
    """An attempt of the escape battery got through, so that programs are not run here."""

    def __init__(self, reason: str, outcome: BatteryOutcome) -> None:
        super().__init__(reason, "make doctor")
        self.outcome = outcome


async def pass_gate(
    opened: OpenedSandbox | SandboxUnavailable, *, run: RunBattery = run_battery
) -> OpenedSandbox | SandboxUnavailable:
    """Run the battery. The same launcher with the result added to its reason, or why it is not offered."""
    if isinstance(opened, SandboxUnavailable):
        return opened
    report = await run(opened.sandbox)
    outcome = BatteryOutcome(report.held, report.total, report.at)
    if report.holds:
        _log.info("Escape battery passed", launcher=report.launcher, held=report.held, took_s=report.took_s)
        why = f"{opened.why}; escape battery: {report.held} of {report.total} attempts denied"
        return replace(opened, why=why, battery=outcome)
    first = report.missed()[0]
    _log.error("Escape battery failed", launcher=report.launcher, held=report.held, total=report.total)
    return HolesFound(
        f"EXECUTION_GATE=battery, and {report.launcher} denied only {report.held} of {report.total} escape attempts. "
        f"The first that succeeded: {first.attempt} ({first.detail}).",
        outcome,
    )


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
