"""Evaluates a group's output: how many tests passed, which failed and how, what took longest. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from suite.groups import Group

MAX_SHOWN_LINES = 1_200
TAIL_LINES, INTERRUPTED_TAIL_LINES = 120, 40
SLOWEST = 15

SUMMARY = re.compile(r"^[= ]*((?:\d+ [a-z]+, )*\d+ [a-z]+|no tests ran) in [\d.]+s\b.*$", re.MULTILINE)
COUNT = re.compile(r"(\d+) ([a-z]+)")
FAILURES = re.compile(r"^=+ (?:ERRORS|FAILURES) =+$", re.MULTILINE)
STARTED = re.compile(r"^(tests/[^\s:]+\.py)::\S.*$", re.MULTILINE)
DURATION = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(\S.*)$", re.MULTILINE)

TESTS_FAILED = 1
EXIT_WORDS = {
    TESTS_FAILED: "tests failed",
    2: "it was interrupted",
    3: "pytest crashed",
    4: "pytest was called with invalid arguments",
    5: "it has no tests",
}


@dataclass(frozen=True, slots=True)
class GroupRun:
    """A completed group. `exit_code` is negative for a signal and None when the time for all of the tests was over.

    `text` is its output; `again` the output of its last file, run once more to show why pytest crashed; `second` the
    output of its failed tests when only they were run once more, with the exit code of that.
    """

    group: Group
    exit_code: int | None
    took_s: float
    text: str
    again: str = ""
    second: str = ""
    second_exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of tests. Other losses of a group, for example by a crash, count as one error."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.errors + other.errors,
            self.skipped + other.skipped,
        )


def is_good(run: GroupRun) -> bool:
    """Whether all of it ran without failures and reported so."""
    return run.exit_code == 0 and parse_counts(run.text) != Counts()


def count_to_repeat(run: GroupRun) -> int:
    """How many of its tests failed, if nothing else went wrong."""
    counts = parse_counts(run.text)
    return counts.failed + counts.errors if run.exit_code == TESTS_FAILED else 0


def is_flaky(run: GroupRun) -> bool:
    """Whether some tests failed, and all of them passed when run once more."""
    counts = parse_counts(run.second)
    return run.second_exit_code == 0 and counts.passed > 0 and not counts.failed and not counts.errors


def build_counts(run: GroupRun) -> Counts:
    """The counts of a run; a flaky test counts as passed, by its second run."""
    found = parse_counts(run.text)
    if is_flaky(run):
        return Counts(passed=found.passed + parse_counts(run.second).passed, skipped=found.skipped)
    lost = not is_good(run) and not found.failed and not found.errors
    return found + Counts(errors=1) if lost else found


def parse_counts(text: str) -> Counts:
    """Parse pytest's last line; zero counts if it is missing."""
    lines = SUMMARY.findall(text)
    found = {word.rstrip("s"): int(number) for number, word in COUNT.findall(lines[-1])} if lines else {}
    return Counts(
        passed=found.get("passed", 0) + found.get("xfailed", 0),
        failed=found.get("failed", 0) + found.get("xpassed", 0),
        errors=found.get("error", 0),
        skipped=found.get("skipped", 0),
    )


def try_find_last_file(text: str) -> str | None:
    """The file of the test that started last."""
    started = STARTED.findall(text)
    return started[-1] if started else None


def render_progress(run: GroupRun) -> str:
    return f"{run.group.name}: {_render_counts(build_counts(run))}, {_render_end(run)} after {run.took_s:.1f} s"


def render_failure(run: GroupRun) -> str:
    """All that a reader needs to fix it: the failures, or otherwise the end of the output."""
    title = f"{run.group.name}: {_render_end(run)}"
    tail_lines = INTERRUPTED_TAIL_LINES if run.exit_code is None else TAIL_LINES
    parts = [f"{'#' * 20} {title} {'#' * 20}", _cut(_find_failures(run.text, tail_lines))]
    if run.again:
        parts += [
            f"{'#' * 20} {run.group.name}: its last file, run again {'#' * 20}",
            _cut(_find_failures(run.again, TAIL_LINES)),
        ]
    if run.second:
        end = "passed" if is_flaky(run) else "failed again"
        parts += [
            f"{'#' * 20} {run.group.name}: the failed tests were run again and {end} {'#' * 20}",
            _cut(_find_failures(run.second, INTERRUPTED_TAIL_LINES)),
        ]
    return "\n".join(parts)


def render_flaky(runs: Iterable[GroupRun]) -> str:
    """How many tests failed and then passed; empty if none did. Each still hides a race."""
    found = sum(parse_counts(run.second).passed for run in runs if is_flaky(run))
    return (
        f"flaky: {found}, shown above: they failed, then passed when run alone. Each one hides a race." if found else ""
    )


def render_slowest(runs: Iterable[GroupRun]) -> str:
    """The slowest tests of all groups; each group's output must name its own."""
    found = [(float(took), name) for run in runs for took, name in DURATION.findall(run.text)]
    return "\n".join(f"{took:8.2f}s {name}" for took, name in sorted(found, reverse=True)[:SLOWEST])


def render_total(runs: Sequence[GroupRun], took_s: float) -> str:
    """One line in the form of pytest's last line."""
    return f"{_render_counts(sum(map(build_counts, runs), Counts()))} in {took_s:.2f}s"


def _render_counts(counts: Counts) -> str:
    words = [f"{counts.passed} passed", f"{counts.failed} failed"]
    words += [f"{counts.errors} error{'s' if counts.errors > 1 else ''}"] if counts.errors else []
    words += [f"{counts.skipped} skipped"] if counts.skipped else []
    return ", ".join(words)


def _render_end(run: GroupRun) -> str:
    match run.exit_code:
        case None:
            return "stopped at the time limit" if run.took_s else "not started: the time limit was reached"
        case 0:
            return "succeeded" if is_good(run) else "it reported no test"
        case code if code < 0:
            return f"ended by signal {-code}"
        case code:
            return EXIT_WORDS.get(code, f"exit code {code}")


def _find_failures(text: str, tail_lines: int) -> str:
    """The text from the first heading of failures on; without one, the end of the output."""
    heading = FAILURES.search(text)
    return text[heading.start() :] if heading else "\n".join(text.splitlines()[-tail_lines:])


def _cut(text: str) -> str:
    """Start and end of a text that is too long to be read."""
    lines = text.rstrip().splitlines()
    if len(lines) <= MAX_SHOWN_LINES:
        return "\n".join(lines)
    half = MAX_SHOWN_LINES // 2
    left_out = f"[{len(lines) - 2 * half} lines are left out]"
    return "\n".join([*lines[:half], left_out, *lines[-half:]])
