"""Measurements and output of a bench: rows of ours against a baseline of the same run, each with a target ratio."""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass

Sample = Callable[[], Awaitable[float]]
"""Measures one subject once."""
HEADER = "goal | ours | baseline | ratio | target | holds"


@dataclass(frozen=True, slots=True)
class Goal:
    """One row; `goal` names the unit of `ours` and `baseline`. Without a target it is informational, and `holds` is
    None."""

    goal: str
    ours: float
    baseline: float
    ratio: float
    target: float | None
    holds: bool | None


def run_goals(about: str | None, measure: Callable[..., Sequence[Goal]], **numbers: int) -> int:
    """A bench as a script: `--json`, and one option for each of `numbers`, passed to `measure` by name.

    Prints the rows; returns the exit code, which is 1 when a goal doesn't hold.
    """
    arguments = argparse.ArgumentParser(description=about)
    arguments.add_argument("--json", action="store_true", help="one JSON array instead of a table")
    for name, number in numbers.items():
        arguments.add_argument(f"--{name}", type=int, default=number, help="%(default)s when not given")
    chosen = vars(arguments.parse_args())
    as_json = chosen.pop("json")
    goals = measure(**chosen)
    sys.stdout.write((render_json(goals) if as_json else render_table(goals)) + "\n")
    return 1 if any(goal.holds is False for goal in goals) else 0


def build_goal(goal: str, ours: float, baseline: float, target: float | None = None, *, at_least: bool = False) -> Goal:
    """Holds when ours is at most `target` times the baseline, or with `at_least` at least that. `baseline` is above
    0."""
    ratio = ours / baseline
    holds = None if target is None else (ratio >= target if at_least else ratio <= target)
    return Goal(goal, ours, baseline, ratio, target, holds)


def render_table(goals: Sequence[Goal]) -> str:
    return "\n".join([HEADER, *(_render_row(goal) for goal in goals)])


def render_json(goals: Sequence[Goal]) -> str:
    return json.dumps([asdict(goal) for goal in goals])


def _render_row(row: Goal) -> str:
    target = "-" if row.target is None else f"{row.target:g}"
    holds = {True: "yes", False: "NO", None: "-"}[row.holds]
    return f"{row.goal} | {row.ours:.3f} | {row.baseline:.3f} | {row.ratio:.2f} | {target} | {holds}"


async def measure_medians(subjects: Sequence[Sample], samples: int, *, warmups: int = 0) -> list[float]:
    """Each subject's median. The subjects are measured alternately, so that noise affects all; the first `warmups`
    don't count."""
    taken: list[list[float]] = [[] for _ in subjects]
    for _ in range(warmups + samples):
        for kept, subject in zip(taken, subjects, strict=True):
            kept.append(await subject())
    return [statistics.median(kept[warmups:]) for kept in taken]


async def measure_ms(action: Callable[[], Awaitable[object]]) -> float:
    """The duration of one action in milliseconds."""
    began = time.perf_counter()
    await action()
    return (time.perf_counter() - began) * 1_000
