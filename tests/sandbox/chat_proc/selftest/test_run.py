"""The whole battery on the real sandbox: one test for each attempt, and a report also where nothing runs."""

import pytest

from chat_proc.sandbox.port import RunError
from chat_proc.sandbox.results import build_refused
from chat_proc.selftest.run import list_attempts, run_battery

MAX_S = 180.0
"""Three times what the slower launcher takes on a machine that does other things as well."""
MANY = 190
"""An attempt that vanishes is noticed."""


@pytest.mark.parametrize(("group", "attempt"), list_attempts())
def test_the_attempt_is_denied(report, group, attempt):
    [finding] = [found for found in report.findings if (found.group, found.attempt) == (group, attempt)]

    assert finding.held, finding.detail


def test_the_battery_is_quick_and_whole(report, sandbox):
    assert report.total == len(set(list_attempts())) > MANY
    assert report.holds
    assert report.launcher == sandbox.posture.launcher
    assert report.took_s < MAX_S


class DeadSandbox:
    """Starts nothing."""

    def __init__(self, sandbox):
        self.posture, self.limits = sandbox.posture, sandbox.limits

    async def run(self, request, call_tool, *, stop=None):
        return build_refused(request, self.limits, RunError("sandbox_failed", "no walls", "sandbox"))


async def test_where_nothing_can_be_started_nothing_has_held(sandbox):
    report = await run_battery(DeadSandbox(sandbox))

    assert report.held == 0
    assert report.total == len(list_attempts())
    assert "no walls" in report.findings[0].detail


def test_the_page_of_the_documents_says_what_was_found_here(report, repository):
    page = (repository / "docs" / "subsystems" / "sandbox-battery.md").read_text()
    head, _, *rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    column = head.index(report.launcher)

    reported = {(row[0], row[1]): row[column] for row in rows}

    assert list(reported) == list(list_attempts())
    assert {pair for pair, word in reported.items() if word != "denied"} == set()
