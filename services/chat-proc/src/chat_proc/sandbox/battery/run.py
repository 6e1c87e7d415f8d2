"""Runs the escape battery on a launcher: every attempt of it, a few programs at a time, one report at the end."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from chat_proc.sandbox.battery.denials import build_door_trials
from chat_proc.sandbox.battery.findings import BatteryReport, Finding, complete
from chat_proc.sandbox.battery.hunger import build_hungry_trials, describe
from chat_proc.sandbox.battery.neighbour import ATTEMPT, NeighbourLost, load_ended_nonce, open_neighbour
from chat_proc.sandbox.battery.outputs import build_output_trials
from chat_proc.sandbox.battery.surroundings import open_surroundings
from chat_proc.sandbox.battery.trials import GRANTED_TOOL, Trial
from chat_proc.sandbox.battery.web import Site, build_web_trial, open_site
from chat_proc.sandbox.probes.attempts import Surroundings
from everturn.ports.sandbox import ContractItem, RunRequest, Sandbox
from everturn.wire.execution import GatewayCall, ToolReply
from everturn.wire.profiles import BATTERY_PROFILE

AT_ONCE: Final = 3
"""Programs beside the neighbour. More of them make the battery no faster on a small machine."""

Clock = Callable[[], float]


async def run_battery(sandbox: Sandbox, *, now: Clock = time.time) -> BatteryReport:
    """Every attempt on this launcher. What could not be tried has not held. Takes some 10 s."""
    started = now()
    try:
        found = await _try_all(sandbox)
        reason = "the battery does not tell of it"
    except NeighbourLost as lost:
        found, reason = (), str(lost)
    findings = complete(list_attempts(), found, reason)
    return BatteryReport(sandbox.posture.launcher, findings, now(), round(now() - started, 3))


def list_attempts() -> tuple[tuple[str, str], ...]:
    """All pairs of group and attempt, in the order of the table."""
    nowhere = Surroundings("", "", 0, "", "", (), GRANTED_TOOL, ())
    trials = _build_trials(nowhere, Site())
    return (*dict.fromkeys(pair for trial in trials for pair in trial.attempts), ATTEMPT)


async def _try_all(sandbox: Sandbox) -> tuple[Finding, ...]:
    async with open_site() as site, open_surroundings(site.port) as around:
        ended = await load_ended_nonce(sandbox)
        async with open_neighbour(sandbox, around.neighbour) as neighbour:
            trials = _build_trials(replace(around, nonces=(neighbour.nonce, ended)), site)
            found = await _run_all(sandbox, trials)
            return (*found, await neighbour.leave())


def _build_trials(around: Surroundings, site: Site) -> tuple[Trial, ...]:
    """Those that wait come first, so that others run meanwhile."""
    return (
        *build_door_trials(around),
        *build_output_trials(around),
        *build_hungry_trials(around),
        build_web_trial(site),
    )


async def _run_all(sandbox: Sandbox, trials: Sequence[Trial]) -> list[Finding]:
    room = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_run_one(sandbox, trial, room)) for trial in trials]
    return [finding for task in tasks for finding in task.result()]


async def _run_one(sandbox: Sandbox, trial: Trial, room: asyncio.Semaphore) -> tuple[Finding, ...]:
    request = RunRequest(
        execution_id=f"battery-{secrets.token_hex(8)}",
        turn_id="turn_battery",
        program=trial.program,
        contract=tuple(ContractItem(path) for path in trial.outputs),
        inputs=trial.inputs,
        timeout_s=trial.timeout_s,
        profile=BATTERY_PROFILE,
        capability=trial.capability,
    )
    async with room:
        result = await sandbox.run(request, trial.call_tool or _echo)
    message = result.error.message if result.error else result.runtime_err_tail
    return complete(trial.attempts, trial.judge(result), f"{describe(result)}. {message}")


async def _echo(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, True, call.arguments)
