"""`python -m chat_proc battery`: the escape battery on each launcher that the settings name, told on stdout."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from chat_proc.sandbox.battery.findings import BatteryReport, render_lines, render_report, render_table
from chat_proc.sandbox.battery.run import run_battery
from chat_proc.sandbox.opening import ExecutionChoice, ExecutionMode, open_sandbox
from everturn.ports.sandbox import SandboxUnavailable

NOT_HELD: Final = 1


async def run_command(choice: ExecutionChoice, *, as_json: bool, table: Path | None = None) -> int:
    """Exit status 1 says that an attempt got through. A launcher that is not to be had is told of, and no failure.

    `table` is a file for the page of the documents.
    """
    reports: list[BatteryReport] = []
    for mode in list_modes(choice):
        async with open_sandbox(replace(choice, mode=mode)) as opened:
            if isinstance(opened, SandboxUnavailable):
                _tell(_render_absent(mode, opened, as_json=as_json))
                continue
            report = await run_battery(opened.sandbox)
        _tell(render_lines(report) if as_json else [render_report(report)])
        reports.append(report)
    if table is not None:
        await asyncio.to_thread(table.write_text, render_table(reports), encoding="utf-8")
    return 0 if all(report.holds for report in reports) else NOT_HELD


def list_modes(choice: ExecutionChoice) -> tuple[ExecutionMode, ...]:
    """The launchers to try: all that can be meant, or the one that is named."""
    match choice.mode:
        case "off":
            return ()
        case "containers" | "bubblewrap":
            return (choice.mode,)
        case "auto":
            return ("bubblewrap",) if choice.broker is None else ("bubblewrap", "containers")


def _render_absent(mode: str, unavailable: SandboxUnavailable, *, as_json: bool) -> list[str]:
    fact = {"launcher": mode, "unavailable": unavailable.reason, "remedy": unavailable.remedy}
    return [json.dumps(fact) if as_json else f"{mode}: not to be had. {unavailable}"]


def _tell(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
