"""One program of the escape battery: what it runs, and how its result is judged and reported."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from chat_proc.sandbox.port import RunResult, ToolCaller
from everturn.execution.messages import ArgumentRule, Capability, ToolGrant

_MAX_DETAIL_CHARS: Final = 300
_PAGE: Final = """# What the escape battery tries, and which launchers deny it

Made from results by `python -m chat_proc battery --table docs/subsystems/sandbox-battery.md`, with `SANDBOX_PYTHON`
and `BROKER_URL` set; tests keep the rows current. `make doctor` makes the same attempts on your machine, and
`EXECUTION_GATE=battery` offers the code tool only where all of them are denied.

{counts}
"""

GRANTED_TOOL: Final = "battery_tools.echo"
ONE_TOOL: Final = Capability((ToolGrant(GRANTED_TOOL, (ArgumentRule("text", max_chars=100),)),), max_calls=50)
NONCE: Final = "battery_tools._call.__self__._nonce"
"""How a program reads its own nonce, which is no secret to it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One attempt. `detail` says what denied it, or what it obtained."""

    group: str
    attempt: str
    held: bool
    detail: str


@dataclass(frozen=True, slots=True)
class BatteryReport:
    """All attempts on one launcher. `at` is the time of the report, in seconds since 1970."""

    launcher: str
    findings: tuple[Finding, ...]
    at: float
    took_s: float

    @property
    def held(self) -> int:
        return sum(finding.held for finding in self.findings)

    @property
    def total(self) -> int:
        return len(self.findings)

    @property
    def holds(self) -> bool:
        """Whether every attempt was denied; one without attempts proves nothing."""
        return bool(self.findings) and self.held == self.total

    def missed(self) -> tuple[Finding, ...]:
        """The attempts that got through."""
        return tuple(finding for finding in self.findings if not finding.held)

    def summary(self) -> str:
        """In one line: `bubblewrap: 120 of 120 denied`."""
        return f"{self.launcher}: {self.held} of {self.total} denied"


def find_for(group: str, attempt: str, problem: str, proof: str) -> Finding:
    """A finding from the problem, which is empty if there is none, otherwise from the proof."""
    return Finding(group, attempt, not problem, (problem or proof)[:_MAX_DETAIL_CHARS])


def complete(expected: Iterable[tuple[str, str]], found: Iterable[Finding], reason: str) -> tuple[Finding, ...]:
    """One finding for each expected pair of group and attempt: a missing one counts as not held."""
    by_name = {(finding.group, finding.attempt): finding for finding in found}
    return tuple(
        by_name.get(pair) or Finding(*pair, False, f"no answer: {reason}"[:_MAX_DETAIL_CHARS]) for pair in expected
    )


def count_by_group(findings: Sequence[Finding]) -> dict[str, tuple[int, int]]:
    """Held and total of each group, in the order of the battery."""
    counts: dict[str, tuple[int, int]] = {}
    for finding in findings:
        held, total = counts.get(finding.group, (0, 0))
        counts[finding.group] = held + finding.held, total + 1
    return counts


def render_lines(report: BatteryReport) -> list[str]:
    """One line of JSON for each group, for other programs."""
    return [
        json.dumps(
            {
                "launcher": report.launcher,
                "group": group,
                "held": held,
                "of": total,
                "attempts": {finding.attempt: finding.held for finding in report.findings if finding.group == group},
                "missed": [asdict(finding) for finding in report.missed() if finding.group == group],
            }
        )
        for group, (held, total) in count_by_group(report.findings).items()
    ]


def render_report(report: BatteryReport) -> str:
    """The same in readable form."""
    lines = [f"{report.summary()} ({report.took_s:.1f} s)"]
    lines += [f"  {group:<24} {held:>3} of {of}" for group, (held, of) in count_by_group(report.findings).items()]
    lines += [f"  NOT DENIED  {finding.group}: {finding.attempt} ({finding.detail})" for finding in report.missed()]
    return "\n".join(lines)


def render_table(reports: Sequence[BatteryReport]) -> str:
    """The documentation page: each attempt, and where it was denied, without times and machine names."""
    launchers = [report.launcher for report in reports]
    held = {
        (report.launcher, found.group, found.attempt): found.held for report in reports for found in report.findings
    }
    pairs = dict.fromkeys((found.group, found.attempt) for report in reports for found in report.findings)
    rows = [
        f"| {group} | {attempt} | {' | '.join(_mark(held.get((name, group, attempt))) for name in launchers)} |"
        for group, attempt in pairs
    ]
    counts = "\n".join(f"- {report.summary()}" for report in reports)
    head = f"| group | attempt | {' | '.join(launchers)} |\n|---|---|{'---|' * len(launchers)}"
    return f"{_PAGE.format(counts=counts)}\n{head}\n" + "\n".join(rows) + "\n"


def _mark(held: bool | None) -> str:
    return "not tried" if held is None else "denied" if held else "**not denied**"


Judge = Callable[[RunResult], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Trial:
    """`attempts` are the pairs of group and name that `judge` has to report; omitted ones count as not held.

    If `call_tool` is None, tool calls are answered by an echo.
    """

    attempts: tuple[tuple[str, str], ...]
    program: str
    judge: Judge
    timeout_s: float = 20.0
    outputs: tuple[str, ...] = ()
    inputs: Mapping[str, bytes | Path] = field(default_factory=dict[str, bytes | Path])
    capability: Capability = field(default_factory=Capability)
    call_tool: ToolCaller | None = None
