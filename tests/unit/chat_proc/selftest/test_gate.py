"""The gate: a result counts for the same walls for a day, and a launcher with a hole is not offered."""

import json
from dataclasses import replace

import pytest

from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.opening import OpenedSandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.supervised import SupervisorFailed
from chat_proc.selftest.command import MAX_AGE_S, build_key, build_presence, load_or_run, pass_gate
from chat_proc.selftest.run import list_attempts
from chat_proc.selftest.trials import BatteryReport, Finding, dump_report
from everturn.execution.messages import Posture, RunLimits
from everturn.queue.ports import BatteryOutcome, WorkerPresence

POSTURE = Posture("bubblewrap", "cpython 3.12", 1001, "u", "none", "m", "p", "d", "s")
CONTAINERS = replace(POSTURE, launcher="containers")
REPORT = BatteryReport("bubblewrap", (Finding("network", "connect", True, "EPERM"),), 1000.0, 2.0)


class DeadLauncher:
    """Starts nothing, so that a battery on it finds that nothing held."""

    def __init__(self):
        self.asked = 0

    def take(self, profile, run_name):
        self.asked += 1
        raise SupervisorFailed("no walls")


@pytest.fixture
def launcher():
    return DeadLauncher()


@pytest.fixture
def sandbox(launcher):
    return SupervisedSandbox(launcher, POSTURE, RunLimits())


@pytest.fixture
def cache(tmp_path, sandbox):
    file = tmp_path / "battery.json"
    file.write_text(f"{build_key(sandbox)}\n{dump_report(REPORT)}")
    return file


async def test_a_kept_result_spares_the_trial(sandbox, launcher, cache):
    opened = await pass_gate(OpenedSandbox(sandbox, "it works"), cache, now=lambda: 1001.0)

    assert isinstance(opened, OpenedSandbox)
    assert opened.why == "it works; escape battery: 1 of 1 held"
    assert build_presence("w", opened, 4) == WorkerPresence("w", "bubblewrap", BatteryOutcome(1, 1, 1000.0), 4)
    assert launcher.asked == 0


@pytest.mark.parametrize("now", [999.0, 1000.0 + MAX_AGE_S])
async def test_a_result_that_is_too_old_or_of_the_future_is_not_used(sandbox, launcher, cache, now):
    report = await load_or_run(sandbox, cache, now=lambda: now)

    assert (report.held, report.total) == (0, len(list_attempts()))
    assert launcher.asked


@pytest.mark.parametrize(("limits", "image"), [(RunLimits(processes=1), ""), (RunLimits(), "sha256:other")])
async def test_a_result_of_other_walls_or_of_another_image_is_not_used(launcher, cache, limits, image):
    other = SupervisedSandbox(launcher, POSTURE, limits, image)

    assert not (await load_or_run(other, cache, now=lambda: 1001.0)).holds


async def test_containers_whose_image_was_not_seen_are_tried_every_time(launcher, tmp_path):
    seen, unseen = (SupervisedSandbox(launcher, CONTAINERS, RunLimits(), image) for image in ("sha256:a", ""))
    cache = tmp_path / "battery.json"

    cache.write_text(f"{build_key(seen)}\n{dump_report(REPORT)}")
    assert (await load_or_run(seen, cache, now=lambda: 1001.0)).holds
    cache.write_text(f"{build_key(unseen)}\n{dump_report(REPORT)}")
    assert not (await load_or_run(unseen, cache, now=lambda: 1001.0)).holds


@pytest.mark.parametrize("text", ["", "x\ny", json.dumps([])])
async def test_an_invalid_cached_result_is_not_used(sandbox, cache, text):
    cache.write_text(text)

    assert not (await load_or_run(sandbox, cache, now=lambda: 1001.0)).holds


async def test_a_launcher_with_a_hole_is_not_offered_and_says_which(sandbox, tmp_path):
    opened = await pass_gate(OpenedSandbox(sandbox, "it works"), tmp_path / "battery.json", now=lambda: 7.0)

    assert isinstance(opened, SandboxUnavailable)
    assert f"0 of {len(list_attempts())} attempts held" in opened.reason
    assert opened.remedy == "make doctor"
    assert list(tmp_path.iterdir()) == []
    assert build_presence("w", opened, 4) == WorkerPresence("w", "", BatteryOutcome(0, len(list_attempts()), 7.0), 4)


async def test_without_a_launcher_there_is_nothing_to_try():
    unavailable = SandboxUnavailable("No bubblewrap.")

    assert await pass_gate(unavailable, None) is unavailable
    assert build_presence("w", unavailable, 4) == WorkerPresence("w", "", None, 4)


def test_without_the_gate_the_launcher_is_reported_as_not_tested(sandbox):
    assert build_presence("w", OpenedSandbox(sandbox, "it works"), 4) == WorkerPresence("w", "bubblewrap", None, 4)
