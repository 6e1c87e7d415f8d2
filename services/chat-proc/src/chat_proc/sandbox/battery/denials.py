"""The part of the escape battery that tries doors: programs that run many attempts and print what each was denied."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

from chat_proc.sandbox.battery.findings import Finding
from chat_proc.sandbox.battery.trials import NONCE, ONE_TOOL, Trial
from chat_proc.sandbox.probes import attempts, folders, gateway, kernel, network, privileges, processes
from chat_proc.sandbox.probes.attempts import Group, Surroundings
from everturn.ports.sandbox import RunResult

DOORS: Final = {
    "network": network.GROUPS,
    "folders": folders.GROUPS,
    "privileges": privileges.GROUPS,
    "kernel": kernel.GROUPS,
    "processes": processes.GROUPS,
}
"""Groups by the module of probes that has them."""
_PROBES: Final = "chat_proc.sandbox.probes"
_HEAD: Final = f"""
import sys
sys.path.insert(0, WORKDIR)
from {_PROBES} import attempts, {{modules}}
"""


def build_door_trials(around: Surroundings) -> tuple[Trial, ...]:
    """One program for all doors, and two for the gateway: one that abuses it, one that waits."""
    inputs = build_inputs(around)
    tried = ", ".join(f"*{module}.GROUPS" for module in DOORS)
    doors = f"{_HEAD.format(modules=', '.join(DOORS))}attempts.run({tried})\n"
    head = _HEAD.format(modules="gateway")
    abuse = f"{head}attempts.run(gateway.GATEWAY, nonce={NONCE})\n"
    waiting = f"{head}attempts.run_together(gateway.PATIENCE, {NONCE})\n"
    granted = partial(Trial, judge=read_answers, inputs=inputs, capability=ONE_TOOL)
    return (
        Trial(_pairs(group for groups in DOORS.values() for group in groups), doors, read_answers, inputs=inputs),
        granted(_pairs([gateway.GATEWAY]), abuse),
        granted(_pairs([gateway.PATIENCE]), waiting, timeout_s=40.0),
    )


def build_inputs(around: Surroundings) -> dict[str, bytes | Path]:
    """The probes as files of the work folder, where they are imported by their usual names, and what they may know."""
    folder = Path(attempts.__file__).parent
    files: dict[str, bytes | Path] = {
        f"{_PROBES.replace('.', '/')}/{file.name}": file.read_bytes() for file in sorted(folder.glob("*.py"))
    }
    return {**files, "surroundings.json": json.dumps(asdict(around)).encode()}


def read_answers(result: RunResult) -> list[Finding]:
    """What the program printed; other lines say nothing."""
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
