"""Decides whether programs may run on a launcher: only if every attempt of the escape battery was denied.

A result is cached for a day, as long as launcher, walls, image, kernel and code are the same. `python -m chat_proc
battery` runs the battery for an operator.
"""

import asyncio
import hashlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import structlog

from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.opening import ExecutionChoice, ExecutionMode, OpenedSandbox, open_sandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.selftest.run import list_attempts, run_battery
from chat_proc.selftest.trials import (
    BatteryReport,
    dump_report,
    parse_report,
    render_lines,
    render_report,
    render_table,
)
from everturn.queue.ports import BatteryOutcome, WorkerPresence

MAX_AGE_S: Final = 24 * 3600.0
_MAX_REPORT_BYTES: Final = 1 << 20
_OURS: Final = ("chat_proc.sandbox", "chat_proc.selftest", "everturn.execution", "exec_supervisor", "executor")
"""Packages whose code defines the walls; those that are not installed here are in the images."""

_log = structlog.get_logger(__name__)


class HolesFound(SandboxUnavailable):
    """An attempt of the escape battery got through, so that programs are not run here."""

    def __init__(self, reason: str, outcome: BatteryOutcome) -> None:
        super().__init__(reason, "make doctor")
        self.outcome = outcome


async def pass_gate(
    opened: OpenedSandbox | SandboxUnavailable, cache: Path | None, *, now: Callable[[], float] = time.time
) -> OpenedSandbox | SandboxUnavailable:
    """The same launcher with the result added to its reason, or why it is not offered."""
    if isinstance(opened, SandboxUnavailable):
        return opened
    report = await load_or_run(opened.sandbox, cache, now=now)
    outcome = BatteryOutcome(report.held, report.total, report.at)
    if report.holds:
        _log.info("Escape battery passed", launcher=report.launcher, held=report.held, took_s=report.took_s)
        why = f"{opened.why}; escape battery: {report.held} of {report.total} held"
        return replace(opened, why=why, battery=outcome)
    first = report.missed()[0]
    _log.error("Escape battery failed", launcher=report.launcher, held=report.held, total=report.total)
    return HolesFound(
        f"The escape battery gates execution, and on {report.launcher} {report.held} of {report.total} attempts held; "
        f"the first that did not: {first.attempt} ({first.detail}).",
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


async def load_or_run(
    sandbox: SupervisedSandbox, cache: Path | None, *, now: Callable[[], float] = time.time
) -> BatteryReport:
    """The cached result if it is for these walls and recent enough, otherwise a new one, which is cached if all
    attempts were denied.

    Containers with an unknown image are tested every time: a cached result could be for another image.
    """
    unseen = sandbox.posture.launcher == "containers" and not sandbox.image
    if unseen or cache == Path():  # what an empty setting becomes
        cache = None
    key = await asyncio.to_thread(build_key, sandbox)
    if cache is not None and (kept := await asyncio.to_thread(_try_load, cache, key, now())):
        return kept
    report = await run_battery(sandbox, now=now)
    if cache is not None and report.holds:
        await asyncio.to_thread(_save, cache, key, report)
    return report


def build_key(sandbox: SupervisedSandbox) -> str:
    """A hash of what the result depends on: posture (launcher, user...), limits, image, kernel, attempts, our code."""
    digest = hashlib.sha256()
    # Each run has another user, so the trial's user is irrelevant.
    facts = [
        asdict(replace(sandbox.posture, outer_uid=0)),
        asdict(sandbox.limits),
        sandbox.image,
        list(os.uname()),
        list_attempts(),
    ]
    digest.update(json.dumps(facts).encode())
    for file in _find_sources():
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _find_sources() -> Iterator[Path]:
    for package in _OURS:
        spec = importlib.util.find_spec(package) if importlib.util.find_spec(package.partition(".")[0]) else None
        for folder in spec.submodule_search_locations or () if spec else ():
            yield from sorted(Path(folder).rglob("*.py"))


def _try_load(cache: Path, key: str, now: float) -> BatteryReport | None:
    try:
        with cache.open(encoding="utf-8") as file:
            kept_key, _, text = file.read(_MAX_REPORT_BYTES).partition("\n")
        report = parse_report(text)
    except (OSError, ValueError):
        return None
    return report if kept_key == key and report.holds and 0 <= now - report.at < MAX_AGE_S else None


def _save(cache: Path, key: str, report: BatteryReport) -> None:
    """Save atomically; if that fails, the next start runs the battery again."""
    draft = cache.with_name(f".{cache.name}.{os.getpid()}")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(f"{key}\n{dump_report(report)}", encoding="utf-8")
        os.replace(draft, cache)
    except OSError as error:
        _log.warning("Could not save the report of the escape battery", error=str(error))


# `python -m chat_proc battery`: runs the escape battery on each configured launcher, and reports on stdout.

NOT_HELD: Final = 1


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


def list_modes(choice: ExecutionChoice) -> tuple[ExecutionMode, ...]:
    """The launchers to test: all possible ones, or the configured one."""
    match choice.mode:
        case "off":
            return ()
        case "containers" | "bubblewrap":
            return (choice.mode,)
        case "auto":
            return ("bubblewrap",) if choice.broker is None else ("bubblewrap", "containers")


def _render_absent(mode: str, unavailable: SandboxUnavailable, *, as_json: bool) -> list[str]:
    fact = {"launcher": mode, "unavailable": unavailable.reason, "remedy": unavailable.remedy}
    return [json.dumps(fact) if as_json else f"{mode}: not available. {unavailable}"]


def _print(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
