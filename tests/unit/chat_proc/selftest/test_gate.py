"""The gate: a launcher on which an attempt got through is not offered."""

import pytest

from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.opening import OpenedSandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.supervised import SupervisorFailed
from chat_proc.selftest.command import HolesFound, build_presence, pass_gate
from chat_proc.selftest.run import list_attempts
from chat_proc.selftest.trials import BatteryReport, Finding
from everturn.execution.messages import Posture, RunLimits
from everturn.queue.model import BatteryOutcome, WorkerPresence

POSTURE = Posture("bubblewrap", "cpython 3.12", 1001, "u", "none", "m", "p", "d", "s")
REPORT = BatteryReport("bubblewrap", (Finding("network", "connect", True, "EPERM"),), 1000.0, 2.0)


class DeadLauncher:
    """Starts nothing, so that a battery on it finds that nothing held."""

    def take(self, profile, run_name):
        raise SupervisorFailed("no walls")


@pytest.fixture
def sandbox():
    return SupervisedSandbox(DeadLauncher(), POSTURE, RunLimits())


async def test_a_launcher_on_which_every_attempt_is_denied_is_offered_with_the_result(sandbox):
    async def run(_):
        return REPORT

    opened = await pass_gate(OpenedSandbox(sandbox, "it works"), run=run)

    assert isinstance(opened, OpenedSandbox)
    assert opened.why == "it works; escape battery: 1 of 1 attempts denied"
    assert build_presence("w", opened, 4) == WorkerPresence("w", "bubblewrap", BatteryOutcome(1, 1, 1000.0), 4)


async def test_a_launcher_with_a_hole_is_not_offered_and_says_which(sandbox):
    opened = await pass_gate(OpenedSandbox(sandbox, "it works"))

    assert isinstance(opened, HolesFound)
    assert f"denied only 0 of {len(list_attempts())} escape attempts" in opened.reason
    assert opened.remedy == "make doctor"
    assert build_presence("w", opened, 4) == WorkerPresence("w", "", opened.outcome, 4)


async def test_without_a_launcher_there_is_nothing_to_try():
    unavailable = SandboxUnavailable("No bubblewrap.")

    assert await pass_gate(unavailable) is unavailable
    assert build_presence("w", unavailable, 4) == WorkerPresence("w", "", None, 4)


def test_without_the_gate_the_launcher_is_reported_as_not_tested(sandbox):
    assert build_presence("w", OpenedSandbox(sandbox, "it works"), 4) == WorkerPresence("w", "bubblewrap", None, 4)
