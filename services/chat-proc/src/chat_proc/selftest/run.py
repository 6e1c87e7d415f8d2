"""The escape battery: all its programs, including those that run many attempts and print what was denied."""

import asyncio
import contextlib
import json
import os
import secrets
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final

from chat_proc.sandbox.port import ContractItem, RunRequest, RunResult, Sandbox
from chat_proc.sandbox.results import is_refused_by_sandbox
from chat_proc.selftest.exhaustion import (
    ATTEMPT,
    NeighbourLost,
    build_output_trials,
    build_resource_trials,
    describe,
    load_ended_nonce,
    open_neighbour,
)
from chat_proc.selftest.probes import attempts, folders, gateway, kernel, network, privileges, processes
from chat_proc.selftest.probes.attempts import Group, Surroundings
from chat_proc.selftest.trials import GRANTED_TOOL, NONCE, ONE_TOOL, BatteryReport, Finding, Trial, complete
from chat_proc.selftest.web import Site, build_web_trial, open_site
from everturn.execution.messages import GatewayCall, ToolReply
from everturn.execution.profiles import BATTERY_PROFILE

DOORS: Final = {
    "network": network.GROUPS,
    "folders": folders.GROUPS,
    "privileges": privileges.GROUPS,
    "kernel": kernel.GROUPS,
    "processes": processes.GROUPS,
}
"""Groups by their module of probes."""
_PROBES: Final = "chat_proc.selftest.probes"
_HEAD: Final = f"""
import sys
sys.path.insert(0, WORKDIR)
from {_PROBES} import attempts, {{modules}}
"""

_VARIABLE: Final = "EVERTURN_BATTERY_CANARY"
_ENGINE_SOCKETS: Final = (
    *("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"),
    *("/run/everturn/broker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"),
)

AT_ONCE: Final = 3
"""Concurrent programs in addition to the neighbour. More would not speed up the battery on a small machine."""

Clock = Callable[[], float]


def build_door_trials(around: Surroundings) -> tuple[Trial, ...]:
    """One program for all doors, and two for the gateway: one that abuses it, one that waits."""
    inputs = build_inputs(around)
    tried = ", ".join(f"*{module}.GROUPS" for module in DOORS)
    doors = f"{_HEAD.format(modules=', '.join(DOORS))}attempts.run({tried})\n"
    head = _HEAD.format(modules="gateway")
    abuse = f"{head}attempts.run(gateway.GATEWAY, nonce={NONCE})\n"
    waiting = f"{head}attempts.run_together(gateway.TIMEOUTS, {NONCE})\n"
    granted = partial(Trial, judge=read_answers, inputs=inputs, capability=ONE_TOOL)
    return (
        Trial(_pairs(group for groups in DOORS.values() for group in groups), doors, read_answers, inputs=inputs),
        granted(_pairs([gateway.GATEWAY]), abuse),
        granted(_pairs([gateway.TIMEOUTS]), waiting, timeout_s=40.0),
    )


def build_inputs(around: Surroundings) -> dict[str, bytes | Path]:
    """The probes as files of the work folder, importable by their usual names, and the surroundings that they may
    know."""
    folder = Path(attempts.__file__).parent
    files: dict[str, bytes | Path] = {
        f"{_PROBES.replace('.', '/')}/{file.name}": file.read_bytes() for file in sorted(folder.glob("*.py"))
    }
    return {**files, "surroundings.json": json.dumps(asdict(around)).encode()}


def read_answers(result: RunResult) -> list[Finding]:
    """The findings that the program printed; other lines are ignored."""
    findings: list[Finding] = []
    for line in result.user_out_tail.splitlines():
        try:
            answer: object = json.loads(line)
        except ValueError:
            continue
        match answer:
            case [str(group), str(attempt), bool(held), str(detail)]:
                findings.append(Finding(group, attempt, held, detail))
            case _:
                continue
    return findings


def _pairs(groups: Iterable[Group]) -> tuple[tuple[str, str], ...]:
    return tuple((group.title, name) for group in groups for name in group.attempts)


@contextlib.asynccontextmanager
async def open_surroundings(port: int) -> AsyncGenerator[Surroundings]:
    """A secret in our environment and in a world-readable file, and a listening abstract socket.

    `port` belongs to a server on this machine. The nonces are not known yet.
    """
    canary, abstract = secrets.token_hex(16), f"everturn-battery-{secrets.token_hex(8)}"
    with _environment(canary), _readable_file(canary) as file, socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + abstract)
        listener.setblocking(False)
        server = await asyncio.start_unix_server(lambda _, writer: writer.close(), sock=listener)
        async with server:
            yield Surroundings(
                canary=canary,
                neighbour=secrets.token_hex(16),
                port=port,
                abstract=abstract,
                host_file=str(file),
                engine_sockets=_ENGINE_SOCKETS,
                granted=GRANTED_TOOL,
                nonces=(),
            )


@contextlib.contextmanager
def _environment(canary: str) -> Generator[None]:
    os.environ[_VARIABLE] = canary
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)


@contextlib.contextmanager
def _readable_file(canary: str) -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="everturn-battery-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - nothing but the sandbox's walls may keep it from a program
        file = Path(folder) / "canary"
        file.write_text(canary, encoding="ascii")
        file.chmod(0o644)
        yield file


async def run_battery(sandbox: Sandbox, *, at_once: int = AT_ONCE, now: Clock = time.time) -> BatteryReport:
    """Run every attempt on this launcher. Attempts that could not run count as not held. Takes about 10 s."""
    started = now()
    try:
        found = await _try_all(sandbox, at_once)
        reason = "the battery did not report it"
    except NeighbourLost as lost:
        found, reason = (), str(lost)
    findings = complete(list_attempts(), found, reason)
    return BatteryReport(sandbox.posture.launcher, findings, now(), round(now() - started, 3))


def list_attempts() -> tuple[tuple[str, str], ...]:
    """All pairs of group and attempt, in the order of the table."""
    nowhere = Surroundings("", "", 0, "", "", (), GRANTED_TOOL, ())
    trials = _build_trials(nowhere, Site())
    return (*dict.fromkeys(pair for trial in trials for pair in trial.attempts), ATTEMPT)


async def _try_all(sandbox: Sandbox, at_once: int) -> tuple[Finding, ...]:
    async with open_site() as site, open_surroundings(site.port) as around:
        ended = await load_ended_nonce(sandbox)
        async with open_neighbour(sandbox, around.neighbour) as neighbour:
            trials = _build_trials(replace(around, nonces=(neighbour.nonce, ended)), site)
            found = await _run_all(sandbox, trials, at_once)
            return (*found, await neighbour.leave())


def _build_trials(around: Surroundings, site: Site) -> tuple[Trial, ...]:
    """Trials that wait come first, so that others run meanwhile."""
    return (
        *build_door_trials(around),
        *build_output_trials(around),
        *build_resource_trials(around),
        build_web_trial(site),
    )


async def _run_all(sandbox: Sandbox, trials: Sequence[Trial], at_once: int) -> list[Finding]:
    room = asyncio.Semaphore(at_once)
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
    # A judge may read all of /proc.
    judged = () if is_refused_by_sandbox(result) else await asyncio.to_thread(_judge, trial, result)
    return complete(trial.attempts, judged, f"{describe(result)}. {message}")


def _judge(trial: Trial, result: RunResult) -> tuple[Finding, ...]:
    return tuple(trial.judge(result))


async def _echo(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, True, call.arguments)
