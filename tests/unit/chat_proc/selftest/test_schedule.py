"""The battery of a worker that serves turns: it waits for them, repeats, and reports what it found."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from tests.unit.chat_proc.selftest.results import build_run

from chat_proc.sandbox.port import RunError
from chat_proc.sandbox.results import build_refused
from chat_proc.selftest import schedule
from chat_proc.selftest.exhaustion import open_neighbour
from chat_proc.selftest.run import list_attempts, run_battery
from chat_proc.selftest.schedule import BatterySchedule
from chat_proc.selftest.trials import BatteryReport, Finding
from chat_proc.worker.loop import Slots
from everturn.execution.messages import GatewayCall, Posture, RunLimits, ToolGrant
from everturn.queue.model import BatteryOutcome

PASSED = BatteryReport("bubblewrap", (Finding("network", "connect", True, "EPERM"),), 1000.0, 2.0)
ESCAPED = replace(PASSED, findings=(*PASSED.findings, Finding("network", "listen", False, "port 1")))
HELD = replace(PASSED, findings=(*PASSED.findings, Finding("network", "listen", True, "EPERM")))
OTHER = replace(ESCAPED, findings=(Finding("network", "connect", False, "connected"), ESCAPED.findings[1]))
UNCLEAR = replace(PASSED, findings=(*PASSED.findings, Finding("network", "listen", False, "busy", answered=False)))


class Repeated:
    """A schedule whose runs are counted, and give the reports of `found` one after the other."""

    def __init__(self, *found: BatteryReport, interval_s: float = 0.01) -> None:
        self.found, self.noted, self.ran = list(found), list[BatteryOutcome](), asyncio.Event()
        self.slots = Slots(1)
        self.schedule = BatterySchedule(
            None,
            interval_s=interval_s,
            wait_idle=self.slots.wait_idle,
            note=self.noted.append,
            run=self.run,
            first_s=0.0,
        )

    async def run(self, _) -> BatteryReport:
        report = self.found.pop(0)
        if not self.found:
            self.ran.set()
        return report

    async def until_done(self) -> None:
        running = asyncio.create_task(self.schedule.run())
        await asyncio.wait_for(self.ran.wait(), 5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


def attempts(state: str) -> float | None:
    return REGISTRY.get_sample_value("everturn_escape_battery_attempts", {"state": state})


def runs(outcome: str) -> float:
    return REGISTRY.get_sample_value("everturn_escape_battery_runs_total", {"outcome": outcome}) or 0.0


async def test_the_battery_is_repeated_and_its_last_result_is_published() -> None:
    repeated, before = Repeated(PASSED, ESCAPED, ESCAPED, PASSED, PASSED), (runs("passed"), runs("failed"))

    await repeated.until_done()

    assert repeated.noted[:3] == [
        BatteryOutcome(1, 1, 1000.0),
        BatteryOutcome(1, 2, 1000.0),
        BatteryOutcome(1, 1, 1000.0),
    ]
    assert runs("passed") >= before[0] + 2
    assert runs("failed") == before[1] + 1


@pytest.mark.parametrize(
    ("report", "outcome", "said"),
    [
        (ESCAPED, "failed", "Escape battery failed"),
        (UNCLEAR, "incomplete", "Some attempts of the escape battery could not be made"),
    ],
)
async def test_an_escape_is_no_attempt_that_could_not_be_made(report, outcome: str, said: str) -> None:
    before = runs(outcome)

    with capture_logs() as logs:
        await Repeated(report, report).schedule.check()

    assert (attempts("denied"), attempts("succeeded"), attempts("unanswered")) == (
        1,
        int(report is ESCAPED),
        int(report is UNCLEAR),
    )
    assert runs(outcome) == before + 1
    assert [line["log_level"] for line in logs if line["event"] == said] == ["error"]


@pytest.mark.parametrize("second", [PASSED, UNCLEAR, HELD])
async def test_what_succeeds_in_only_one_of_two_runs_is_no_escape(second: BatteryReport) -> None:
    repeated, before = Repeated(ESCAPED, second), (runs("failed"), runs("incomplete"))

    with capture_logs() as logs:
        await repeated.schedule.check()

    assert (attempts("denied"), attempts("succeeded"), attempts("unanswered")) == (1, 0, 1)
    assert (runs("failed"), runs("incomplete")) == (before[0], before[1] + 1)
    assert repeated.noted == [BatteryOutcome(1, 2, 1000.0)]
    assert [line["first"] for line in logs] == [
        "network: listen (port 1)",
        "network: listen (it succeeded in only one run: port 1)",
    ]


async def test_an_escape_found_only_by_the_second_run_is_unconfirmed() -> None:
    await Repeated(ESCAPED, OTHER).schedule.check()

    assert (attempts("denied"), attempts("succeeded"), attempts("unanswered")) == (0, 1, 1)


async def test_a_second_run_that_hangs_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "MAX_RUN_S", 0.01)
    repeated = Repeated(ESCAPED)
    hangs = asyncio.Event()

    async def run(_) -> BatteryReport:
        if not repeated.found:
            await hangs.wait()
        return repeated.found.pop()

    repeated.schedule = BatterySchedule(
        None, interval_s=1, wait_idle=repeated.slots.wait_idle, note=repeated.noted.append, run=run
    )

    await repeated.schedule.check()

    assert (attempts("succeeded"), attempts("unanswered")) == (0, 1)
    assert repeated.noted == [BatteryOutcome(1, 2, 1000.0)]


async def test_the_battery_waits_for_the_turns_but_not_forever() -> None:
    repeated = Repeated(PASSED, interval_s=5)
    repeated.slots.acquire()
    checking = asyncio.create_task(repeated.schedule.check())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not repeated.ran.is_set()
    repeated.slots.release()
    await asyncio.wait_for(checking, 5)

    busy = Repeated(PASSED, interval_s=0.01)
    busy.slots.acquire()
    await asyncio.wait_for(busy.schedule.check(), 5)

    assert len(repeated.noted) == len(busy.noted) == 1


async def test_a_battery_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "MAX_RUN_S", 0.01)
    repeated, before = Repeated(), runs("incomplete")
    repeated.schedule = BatterySchedule(
        None,
        interval_s=1,
        wait_idle=repeated.slots.wait_idle,
        note=repeated.noted.append,
        run=lambda _: asyncio.sleep(9),
    )

    await repeated.schedule.check()

    assert (runs("incomplete"), repeated.noted) == (before + 1, [])


class FullSandbox:
    """Runs the neighbour, and has no room for any other program."""

    posture = Posture("containers", "r", 1, *"unmpds")

    async def run(self, request, call_tool, *, stop=None):
        if request.capability.grants[:1] != (ToolGrant("battery_tools.report"),):
            return build_refused(request, RunLimits(), RunError("sandbox_failed", "busy", "sandbox"))
        await call_tool(GatewayCall(1, "battery_tools.report", {"nonce": "n"}))
        if request.contract:
            await call_tool(GatewayCall(2, "battery_tools.stay", {}))
        return build_run("undisturbed\n")


async def test_attempts_without_a_sandbox_are_unanswered_and_no_escape() -> None:
    report = await run_battery(FullSandbox(), at_once=1)

    assert [finding.held for finding in report.findings if finding.answered] == [True]
    assert (report.held, report.total) == (1, len(list_attempts()))


class StubbornSandbox(FullSandbox):
    """Its run of the neighbour needs a while to end after it was cancelled."""

    def __init__(self) -> None:
        self.is_ending, self.may_end = asyncio.Event(), asyncio.Event()

    async def run(self, request, call_tool, *, stop=None):
        try:
            return await super().run(request, call_tool, stop=stop)
        except asyncio.CancelledError:
            self.is_ending.set()
            await self.may_end.wait()
            raise


async def test_a_drain_while_the_neighbour_ends_is_not_lost() -> None:
    sandbox = StubbornSandbox()

    async def use_and_go_on() -> str:
        async with open_neighbour(sandbox, "mark"):
            pass
        return "went on"

    using = asyncio.create_task(use_and_go_on())
    await asyncio.wait_for(sandbox.is_ending.wait(), 5)
    using.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(using, 5)
    sandbox.may_end.set()
