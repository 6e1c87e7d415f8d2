"""The gate: a launcher on which an attempt got through is not offered."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from chat_proc.sandbox.launching import Launcher, SupervisedSandbox
from chat_proc.sandbox.opening import OpenedSandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.remote.absent import build_absent_sandbox
from chat_proc.sandbox.supervised import SupervisorFailed
from chat_proc.selftest.command import HolesFound, build_presence, pass_gate
from chat_proc.selftest.run import list_attempts
from chat_proc.selftest.trials import BatteryReport, Finding
from everturn.execution.messages import Posture, RunLimits
from everturn.execution.profiles import BATTERY_PROFILE
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
    assert "None succeeded; the first without an answer: " in opened.reason
    assert opened.remedy == "make doctor"
    assert build_presence("w", opened, 4) == WorkerPresence("w", "", opened.outcome, 4)


async def test_without_a_launcher_there_is_nothing_to_try():
    unavailable = SandboxUnavailable("No bubblewrap.")
    elsewhere = OpenedSandbox(build_absent_sandbox(unavailable), "All programs run elsewhere.")

    assert await pass_gate(unavailable) is unavailable
    assert await pass_gate(elsewhere) is elsewhere
    assert build_presence("w", elsewhere, 4).battery is None
    assert build_presence("w", unavailable, 4) == WorkerPresence("w", "", None, 4)


class LateBroker:
    """A launcher that starts nothing until it is `there`. It counts what is taken, by profile, and batteries."""

    keeps_warm = True

    def __init__(self, reports: list[BatteryReport]) -> None:
        self.there = False
        self.taken: list[str] = []
        self.reports = reports

    @contextlib.asynccontextmanager
    async def take(self, profile, run_name):
        if not self.there:
            raise SupervisorFailed("the broker can't be reached")
        self.taken.append(profile)
        yield None

    async def run(self, sandbox):
        async with sandbox.launcher.take(BATTERY_PROFILE, "battery"):
            return self.reports.pop(0)


async def open_late(*reports: BatteryReport) -> tuple[LateBroker, Launcher]:
    broker = LateBroker([*reports])
    unseen = OpenedSandbox(SupervisedSandbox(broker, POSTURE, RunLimits()), "w", silence="No broker.")
    opened = await pass_gate(unseen, run=broker.run)
    assert isinstance(opened, OpenedSandbox)
    assert opened.why == "w; escape battery: nothing was tried yet"
    return broker, opened.sandbox.launcher


async def take(launcher: Launcher, profile: str = "default") -> None:
    async with launcher.take(profile, "r"):
        pass


def find(*, answered: bool) -> BatteryReport:
    return replace(REPORT, findings=(Finding("network", "connect", False, "it got out", answered=answered),))


async def test_a_silent_launcher_is_tested_before_its_first_program():
    broker, launcher = await open_late(REPORT)

    with pytest.raises(SupervisorFailed, match="can't be reached"):
        await take(launcher)
    broker.there = True
    await asyncio.gather(take(launcher), take(launcher, "large"))

    assert sorted(broker.taken) == ["battery", "default", "default", "large"]
    assert broker.reports == []


async def test_a_silent_launcher_with_a_hole_never_runs_a_program():
    broker, launcher = await open_late(find(answered=True), REPORT)
    broker.there = True

    for _ in range(2):
        with pytest.raises(SupervisorFailed, match="The first that succeeded: connect"):
            await take(launcher)

    assert broker.reports == [REPORT]
    await take(launcher, BATTERY_PROFILE)


async def test_a_silent_launcher_that_did_not_answer_is_tested_again_later():
    broker, launcher = await open_late(find(answered=False), REPORT)
    broker.there = True

    for _ in range(2):
        with pytest.raises(SupervisorFailed, match="the first without an answer: connect"):
            await take(launcher)
    assert broker.reports == [REPORT]
    launcher._again_at_s = 0.0
    await take(launcher)

    assert broker.reports == []


def test_without_the_gate_the_launcher_is_reported_as_not_tested(sandbox):
    assert build_presence("w", OpenedSandbox(sandbox, "it works"), 4) == WorkerPresence("w", "bubblewrap", None, 4)
