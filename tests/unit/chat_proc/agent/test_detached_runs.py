"""Turns whose programs take long wait for them without a worker, whatever happens to turn, worker and run meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers.memory_runs import MemoryEngine, build_recorded
from turn_harness.checks import check_conversation
from turn_harness.harness import ANN, Bench, BenchWorker, hear_all, until
from turn_harness.programs import build_program_tools
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.agent.approving import NOT_STARTED
from chat_proc.catalog.call_policy import CallPolicy
from chat_proc.catalog.tool import Strategy, ToolRegistry
from chat_proc.sandbox.detached import local
from chat_proc.sandbox.detached.local import LocalRuns
from chat_proc.sandbox.detached.port import RunEnd
from chat_proc.sandbox.port import ProgramExit, RunArtifact, RunError, RunRecord, RunRequest, RunResult, ToolCaller
from chat_proc.sandbox.receipts import ReceiptSigner, find_key_id, verify_receipt
from chat_proc.sandbox.remote import runs as remote_runs
from chat_proc.sandbox.remote.port import EngineUnavailable, RemoteRun, RunRefused, TaskState
from chat_proc.sandbox.remote.runs import RemoteRuns
from chat_proc.sandbox.results import build_broken, build_refused, hash_bytes
from chat_proc.tools.code import detached_calls, run_code
from chat_proc.tools.code.detached_calls import MAX_STARTS, WAIT_FOR_RESULT_S, DetachedCalls
from chat_proc.tools.code.inputs import InputLoader, Inputs
from chat_proc.tools.code.run_code import RunCodeTool
from chat_proc.worker.run_watch import RunWatch
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.clock import iso
from everturn.core.errors import Unavailable
from everturn.core.ids import ApprovalId
from everturn.core.logging import Redactor
from everturn.core.metrics import DETACHED_RUNS, DETACHED_RUNS_ENDED, DETACHED_RUNS_FAILED
from everturn.core.retry import RetryPolicy
from everturn.events.model import ConvStatus
from everturn.execution.messages import RunLimits
from everturn.execution.profiles import ExecutionProfile
from everturn.timeline.blocks import ApprovalRequestBody, ToolResultBody
from everturn.timeline.turns import Outcome, SignalKind, TurnStatus
from everturn.turns.detached import HOLD_S, WatchedRun
from everturn.turns.inbox import IncomingSignal
from everturn.turns.model import Effect
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.turns.detached import MemoryDetachedRuns

TOOL = "exec_tools.execute_code_python"
PROFILE = "default"
SHORT_S = 0.01
KEY = Ed25519PrivateKey.generate()
SECONDS = len("2026-03-01T12:00:00")


class HeldSandbox:
    """Runs programs until `end` is set; each writes `outputs/a.txt`. One that `breaks` is gone then instead, and while
    it is `away` no program starts."""

    posture = None
    limits = RunLimits()

    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.breaks = False
        self.refuses = False
        """Whether it says late that it has no room."""
        self.away = False
        self.begun: list[str] = []
        self.cancelled: list[str] = []

    async def run(self, request: RunRequest, call_tool: ToolCaller, *, stop: asyncio.Event | None = None) -> RunResult:
        if self.away:
            return build_refused(request, RunLimits(), RunError("sandbox_failed", "No broker answers.", "sandbox"))
        self.begun.append(request.execution_id)
        assert request.capability.grants == ()
        assert stop is not None
        waits = [asyncio.create_task(event.wait()) for event in (self.end, stop)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.cancelled.append(request.execution_id)
            raise
        finally:
            for wait in waits:
                wait.cancel()
        if self.refuses:
            return build_refused(request, RunLimits(), RunError("sandbox_failed", "The broker is busy.", "sandbox"))
        if self.breaks:
            return build_broken(request, RunLimits(), RunError("sandbox_failed", "The broker has ended.", "sandbox"))
        file = RunArtifact("outputs/a.txt", "", "external", 3, "", b"\xff\x00!")
        return RunResult(
            ok=True,
            artifacts=(file,),
            error=None,
            exit=ProgramExit("exit", 0),
            report_text=f"{request.execution_id} has ended.",
            user_out_tail="",
            runtime_err_tail="",
            limits_hit=(),
            duration_ms=5,
            record=RunRecord("0" * 64, request.timeout_s, RunLimits(), None),
        )


class Site:
    """A worker with a sandbox, and what monitors its detached runs."""

    def __init__(
        self,
        bench: Bench,
        *,
        after_s: float = SHORT_S,
        max_held: int = 16,
        grace_s: float = 0.0,
        requires_approval: bool = False,
        more: tuple[DemoTool, ...] = (),
        receipts: ReceiptSigner | None = None,
        networked: ExecutionProfile | None = None,
    ) -> None:
        self.bench = bench
        owner = f"worker-{len(bench.workers) + 1}"
        self.sandbox = HeldSandbox()
        self.runs = MemoryDetachedRuns(bench.platform, owner=owner)
        self.held = LocalRuns(self.sandbox, bench.objects, {PROFILE: after_s}, max_held=max_held)
        self.engine = self.held
        engines = {self.held.name: self.held}
        self.watch = RunWatch(self.runs, engines, bench.doorbells, bench.clock, grace_s=grace_s)
        once, twice = RetryPolicy((0.0,)), RetryPolicy((0.0, 0.0))
        calls = DetachedCalls(self.runs, engines, retries=once, collecting=twice)
        history = WorkspaceHistory(MemoryArtifacts(bench.platform))
        profiles = {PROFILE: ExecutionProfile(detach_after_s=SHORT_S)}
        if networked is not None:
            profiles["net"] = networked
        tool = RunCodeTool(self.sandbox, bench.objects, history, build_program_tools(), profiles, receipts, calls)
        if requires_approval:
            tool.spec = replace(tool.spec, requires_approval=True)
        bench.registry = ToolRegistry([tool, *more])
        self.worker: BenchWorker = bench.hire()

    async def work(self) -> None:
        await self.worker.work()

    async def look(self) -> None:
        await self.watch.poll(self.engine)

    async def end(self) -> None:
        """Let the program end, and notice it once its result is stored."""
        self.sandbox.end.set()
        running = [run for run in await self.runs.hold([self.held.name]) if run.run_id in self.held.list_kept()]
        async with asyncio.timeout(10):
            while len(await self.held.check(running)) < len(running):  # noqa: ASYNC110 - the end has no event of ours
                await asyncio.sleep(0.01)
        await self.look()


RUN_TIMEOUT_S = run_code.USUAL_TIMEOUT_S
RUN = call(TOOL, {"contract": [{"filepath": "outputs/a.txt"}]}, code="print(1)")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench(RUN, answer("Done."))
    await bench.say("Compute it.")
    yield bench


def results(bench: Bench) -> list[ToolResultBody]:
    return [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]


def read_payload(bench: Bench) -> dict[str, Any]:
    """What the receipt of the only result says."""
    (result,) = results(bench)
    receipt = (result.data or {})["run"]["receipt"]
    return verify_receipt(json.dumps(receipt).encode(), {find_key_id(KEY.public_key()): KEY.public_key()})


async def fail(*_: object, **__: object) -> None:
    raise Unavailable("The server is down.")


async def hang(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


async def wake(bench: Bench) -> None:
    """Put a turn that waits back into the queue, with nothing to do."""
    await bench.signal(SignalKind.STEER, "Wait.")
    await bench.retract(bench.waiting_signals()[0])


async def check_end(bench: Bench, outcome: Outcome = Outcome.COMPLETED) -> None:
    """The turn has ended like any other, and nothing of its runs is left."""
    assert [each.outcome for each in bench.exits] == [outcome]
    await check_conversation(bench)
    assert bench.platform.detached == {}


async def test_a_turn_waits_for_a_long_run_without_a_worker(bench: Bench) -> None:
    first, second = Site(bench), Site(bench)

    await first.work()
    assert bench.turn_rows[0].status is TurnStatus.WAITING
    assert bench.platform.conversations[bench.conversation_id].lease_owner is None
    (shown,) = bench.state().turns
    assert (shown.status, [step.status for step in shown.steps]) == ("running", ["started"])
    assert ConvStatus(state="waiting", turn_id=shown.turn_id) not in [each.data for each in await bench.published()]
    bench.keep_snapshot()
    bench.clock.advance(25)
    await first.end()
    await second.work()
    await first.look()

    (result,) = results(bench)
    assert (result.status, result.text.splitlines()[0]) == ("ok", f"{first.sandbox.begun[0]} has ended.")
    assert [artifact.filename for artifact in result.artifacts] == ["a.txt"]
    assert bench.objects.stored[result.artifacts[0].object_key] == b"\xff\x00!"
    assert (result.duration_ms or 0) >= 25_000
    assert second.sandbox.begun == []
    await check_end(bench)
    assert list(bench.objects.stored) == [
        key for key in bench.objects.stored if key == result.artifacts[0].object_key or "manifests" in key
    ]


async def test_a_short_run_stays_with_its_turn(bench: Bench) -> None:
    site = Site(bench)
    site.sandbox.end.set()

    await site.work()

    assert [result.status for result in results(bench)] == ["ok"]
    assert not site.held.list_kept()
    await check_end(bench)


async def test_runs_beyond_the_limit_of_a_worker_stay_with_their_turns(bench: Bench) -> None:
    site = Site(bench, max_held=0)
    working = asyncio.create_task(site.work())
    await until(lambda: bool(site.sandbox.begun))
    await asyncio.sleep(3 * SHORT_S)

    assert bench.turn_rows[0].status is TurnStatus.RUNNING
    site.sandbox.end.set()
    await working

    await check_end(bench)


async def test_a_worker_that_starts_again_early_waits_again(bench: Bench) -> None:
    site = Site(bench)
    await site.work()
    await bench.signal(SignalKind.STEER, "Only the first row.")
    signal_id = bench.waiting_signals()[0]
    await bench.retract(signal_id)

    await site.work()

    assert bench.turn_rows[0].status is TurnStatus.WAITING
    assert len(site.sandbox.begun) == 1
    await site.end()
    await site.work()
    await site.look()
    await check_end(bench)


@pytest.mark.parametrize(
    ("kind", "outcome"), [(SignalKind.CANCEL, Outcome.CANCELLED), (SignalKind.STEER, Outcome.COMPLETED)]
)
async def test_a_person_ends_the_run(bench: Bench, kind: SignalKind, outcome: Outcome) -> None:
    first, second = Site(bench), Site(bench)
    await first.work()
    bench.keep_snapshot()

    await bench.signal(kind, "Stop." if kind is SignalKind.CANCEL else "Answer now.")
    await second.work()
    await first.look()

    assert [result.status for result in results(bench)] == ["cancelled"]
    assert "was ended, or not started" in results(bench)[0].text
    assert first.sandbox.cancelled == first.sandbox.begun
    await check_end(bench, outcome)


async def test_a_followup_is_read_after_the_run(bench: Bench) -> None:
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()

    await bench.signal(SignalKind.FOLLOWUP, "And thanks.")
    await site.work()
    assert bench.turn_rows[0].status is TurnStatus.WAITING
    await site.end()
    await site.work()
    await site.look()

    assert bench.waiting_signals() == []
    await check_end(bench)


async def test_a_run_that_is_lost_with_its_worker_is_started_again(bench: Bench) -> None:
    lost, heir = Site(bench), Site(bench)
    await lost.work()
    bench.keep_snapshot()

    await heir.look()
    assert bench.turn_rows[0].status is TurnStatus.WAITING
    bench.clock.advance(HOLD_S + 1)
    await heir.look()
    await heir.work()
    assert bench.turn_rows[0].status is TurnStatus.WAITING
    assert heir.sandbox.begun == [lost.sandbox.begun[0].removesuffix("_1") + "_2"]
    # Back from a pause: its run is no longer wanted, and its end wakes nobody.
    await lost.look()
    assert lost.sandbox.cancelled == lost.sandbox.begun
    await heir.end()
    await heir.work()
    await heir.look()

    assert [result.text.splitlines()[0] for result in results(bench)] == [f"{heir.sandbox.begun[0]} has ended."]
    await check_end(bench)


async def test_a_worker_that_stops_wakes_its_turns(bench: Bench) -> None:
    stopped, other = Site(bench), Site(bench)
    await stopped.work()
    bench.keep_snapshot()

    await stopped.watch.close()

    assert stopped.sandbox.cancelled == stopped.sandbox.begun
    other.sandbox.end.set()
    await other.work()
    await other.look()
    assert [result.status for result in results(bench)] == ["ok"]
    # It was started again, and ended while its turn had a worker: the row of the first start stays until then.
    bench.clock.advance(HOLD_S + 1)
    await other.look()
    await check_end(bench)


async def test_a_run_whose_sandbox_is_lost_is_started_again(bench: Bench) -> None:
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()

    site.sandbox.breaks = True
    await site.end()
    site.sandbox.breaks = False
    site.sandbox.end.clear()
    await site.work()
    assert [run_id[-2:] for run_id in site.sandbox.begun] == ["_1", "_2"]
    await site.end()
    await site.work()
    await site.look()

    assert [result.status for result in results(bench)] == ["ok"]
    await check_end(bench)


async def test_a_run_that_is_lost_again_and_again_fails(bench: Bench) -> None:
    for n in range(MAX_STARTS):
        site = Site(bench)
        await site.work()
        assert len(site.sandbox.begun) == 1, n
        await site.watch.close()
        bench.keep_snapshot()
    last = Site(bench)

    await last.work()
    bench.clock.advance(HOLD_S + 1)
    await last.look()

    (result,) = results(bench)
    assert result.status == "error"
    assert "started 3 times and was lost each time. The worker that ran it was stopped." in result.text
    await check_end(bench)


async def test_a_result_that_can_not_be_stored_is_kept_until_it_can(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()
    monkeypatch.setattr(local, "SAVE_AGAIN_S", 0.01)
    bench.objects.down = True
    site.sandbox.end.set()
    await asyncio.sleep(0.1)
    bench.clock.advance(RUN_TIMEOUT_S + 600)
    await site.look()
    assert bench.turn_rows[0].status is TurnStatus.WAITING

    bench.objects.down = False
    await site.end()
    await site.work()
    await site.look()

    assert [result.status for result in results(bench)] == ["ok"]
    await check_end(bench)


async def test_a_result_that_can_never_be_stored_is_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()
    monkeypatch.setattr(local, "SAVE_AGAIN_S", 0.01)
    with monkeypatch.context() as outage:
        outage.setattr(bench.objects, "save", fail)
        site.sandbox.end.set()
        await asyncio.sleep(0.1)
        bench.clock.advance(RUN_TIMEOUT_S + site.held.allowance_s + 1)
        await site.look()
    finishing = site.held._runs[site.sandbox.begun[0]].finishing
    await site.work()
    await site.look()

    (result,) = results(bench)
    assert (result.status, "Its result could not be stored." in result.text) == ("error", True)
    assert finishing is not None
    assert (finishing.done(), site.held.list_kept()) == (True, ())
    await check_end(bench)


@pytest.mark.parametrize("loss", ["unreachable", "deleted", "altered"])
async def test_a_result_that_can_not_be_read_is_reported_or_made_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()
    await site.end()
    (key,) = [row.run.detail for row in bench.platform.detached.values()]
    if loss == "deleted":
        del bench.objects.stored[key]
    elif loss == "altered":
        bench.objects.stored[key] = b"{}"
    else:
        bench.clock.advance(RUN_TIMEOUT_S + site.engine.allowance_s + WAIT_FOR_RESULT_S)

    with monkeypatch.context() as outage:
        if loss == "unreachable":
            outage.setattr(bench.objects, "load", fail)
        await site.work()
    await site.look()

    if loss == "deleted":
        assert len(site.sandbox.begun) == 2
        assert [result.status for result in results(bench)] == ["ok"]
    else:
        assert [result.status for result in results(bench)] == ["error"]
        why = "it failed its integrity check" if loss == "altered" else "the file store does not answer"
        assert f"Its result can't be read: {why}." in results(bench)[0].text
    await check_end(bench)


@pytest.mark.parametrize("has_ended", [True, False])
async def test_only_a_start_loads_the_inputs(bench: Bench, monkeypatch: pytest.MonkeyPatch, has_ended: bool) -> None:
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()

    monkeypatch.setattr(InputLoader, "load", fail)
    if has_ended:
        await site.end()
    else:
        await wake(bench)
    await site.work()
    if not has_ended:
        assert (bench.turn_rows[0].status, site.sandbox.cancelled) == (TurnStatus.WAITING, [])
        await site.end()
        await site.work()
    await site.look()

    assert [result.status for result in results(bench)] == ["ok"]
    await check_end(bench)


@pytest.mark.parametrize("what", ["collect", "workspace", "file"])
async def test_an_outage_only_delays_the_result_of_a_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()
    await site.end()

    with monkeypatch.context() as outage:
        place, method = {
            "collect": (site.held, "collect"),
            "workspace": (run_code, "load_local"),
            "file": (bench.objects, "save"),
        }[what]
        outage.setattr(place, method, fail)
        await site.worker.run_one()
        assert (bench.turn_rows[0].status, results(bench)) == (TurnStatus.QUEUED, [])
    await site.work()
    await site.look()

    (result,) = results(bench)
    assert (result.status, [artifact.filename for artifact in result.artifacts]) == ("ok", ["a.txt"])
    assert len(site.sandbox.begun) == 1
    await check_end(bench)


@pytest.mark.parametrize("answers", [True, False])
async def test_a_lost_run_is_started_again_after_an_outage(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    lost, heir = Site(bench), Site(bench)
    await lost.work()
    bench.keep_snapshot()
    await lost.watch.close()

    with monkeypatch.context() as outage:
        if answers:
            outage.setattr(InputLoader, "load", fail)
        else:
            outage.setattr(detached_calls, "ANSWER_S", 0.05)
            outage.setattr(InputLoader, "load", hang)
        await heir.worker.run_one()
        assert (bench.turn_rows[0].status, results(bench)) == (TurnStatus.QUEUED, [])
    heir.sandbox.end.set()
    await heir.work()

    assert [result.status for result in results(bench)] == ["ok"]


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_lost_run_waits_for_its_sandbox_but_not_for_ever(bench: Bench, comes_back: bool) -> None:
    lost, heir = Site(bench), Site(bench)
    await lost.work()
    bench.keep_snapshot()
    await lost.watch.close()

    heir.sandbox.away = True
    await hear_all(bench)
    await asyncio.wait_for(heir.worker.run_one(), 5)
    assert (bench.turn_rows[0].status, results(bench)) == (TurnStatus.QUEUED, [])
    assert bench.platform.conversations[bench.conversation_id].lease_owner is None
    # The sweeper rings for it: an own doorbell would be answered at once, again and again.
    assert await hear_all(bench) == 0
    if comes_back:
        heir.sandbox.away = False
    else:
        bench.clock.advance(RUN_TIMEOUT_S + heir.held.allowance_s + WAIT_FOR_RESULT_S)
    heir.sandbox.end.set()
    await heir.work()
    bench.clock.advance(HOLD_S + 1)
    await heir.look()

    (result,) = results(bench)
    assert result.status == ("ok" if comes_back else "error")
    assert comes_back or "No broker answers." in result.text
    await check_end(bench)


async def test_a_restart_that_loses_its_sandbox_counts_as_a_start(bench: Bench) -> None:
    lost, heir = Site(bench), Site(bench, after_s=10.0)
    await lost.work()
    bench.keep_snapshot()
    await lost.watch.close()

    heir.sandbox.breaks = True
    heir.sandbox.end.set()
    await heir.work()
    bench.clock.advance(HOLD_S + 1)
    await heir.look()

    assert len(lost.sandbox.begun) + len(set(heir.sandbox.begun)) == MAX_STARTS
    assert [result.status for result in results(bench)] == ["error"]
    await check_end(bench)


async def test_a_store_that_hangs_only_delays_the_files_of_a_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()
    await site.end()

    with monkeypatch.context() as outage:
        outage.setattr(run_code, "STORING_S", 0.05)
        outage.setattr(bench.objects, "save", hang)
        await site.worker.run_one()
        assert (bench.turn_rows[0].status, results(bench)) == (TurnStatus.QUEUED, [])
    await site.work()

    assert [artifact.filename for artifact in results(bench)[0].artifacts] == ["a.txt"]


@pytest.mark.parametrize("answers", [True, False])
async def test_a_store_that_does_not_answer_only_delays_the_result_of_a_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()
    await site.end()

    with monkeypatch.context() as outage:
        outage.setattr(detached_calls, "ANSWER_S", 0.05)
        outage.setattr(detached_calls, "WAIT_FOR_RESULT_S", 0.0)
        outage.setattr(site.held, "collect", hang)
        await site.worker.run_one()
        assert (bench.turn_rows[0].status, results(bench)) == (TurnStatus.QUEUED, [])
        if not answers:
            bench.clock.advance(RUN_TIMEOUT_S + site.held.allowance_s + WAIT_FOR_RESULT_S)
            await site.work()
    await site.work()
    await site.look()

    (result,) = results(bench)
    assert result.status == ("ok" if answers else "error")
    assert answers or "Its result can't be read: the file store does not answer." in result.text
    await check_end(bench)


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_lost_run_waits_for_its_inputs_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    bench = Bench(RUN, RUN, answer("Done."))
    await bench.say("Compute it twice.")
    first, lost, heir = Site(bench), Site(bench), Site(bench)
    first.sandbox.end.set()
    given: list[dict[str, bytes]] = []
    run = HeldSandbox.run

    async def note(self: HeldSandbox, request: RunRequest, call_tool: ToolCaller, **stop: Any) -> RunResult:
        given.append({**request.inputs})
        if len(given) == 2:
            first.sandbox.end.clear()
        return await run(self, request, call_tool, **stop)

    monkeypatch.setattr(HeldSandbox, "run", note)
    await first.work()
    await first.watch.close()

    bench.objects.down = True
    await heir.worker.run_one()
    assert (bench.turn_rows[0].status, heir.sandbox.begun) == (TurnStatus.QUEUED, [])
    if comes_back:
        bench.objects.down = False
    else:
        bench.clock.advance(RUN_TIMEOUT_S + lost.held.allowance_s + WAIT_FOR_RESULT_S)
    heir.sandbox.end.set()
    await lost.watch.close()
    await heir.work()

    assert (given[0], len(given)) == ({}, 3)
    assert given[1] != {}
    assert given[2] == (given[1] if comes_back else {})


@pytest.mark.parametrize("has_ended", [True, False])
async def test_a_review_that_fails_ends_no_run(bench: Bench, monkeypatch: pytest.MonkeyPatch, has_ended: bool) -> None:
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()
    if has_ended:
        await site.end()
    else:
        await wake(bench)

    with monkeypatch.context() as outage:
        outage.setattr(CallPolicy, "review", fail)
        site.worker.change(retries=RetryPolicy((0.0,)))
        await site.worker.run_one()
    assert (results(bench), site.sandbox.cancelled) == ([], [])
    await site.work()
    if not has_ended:
        await site.end()
        await site.work()
    await site.look()

    assert [result.status for result in results(bench)] == ["ok"]
    await check_end(bench)


async def test_an_overdue_run_is_ended(bench: Bench) -> None:
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()

    bench.clock.advance(3_600)
    await site.look()
    await site.work()
    await site.look()

    (result,) = results(bench)
    assert (result.status, result.data and result.data["run"]["error"]["code"]) == ("error", "timeout")
    assert "It exceeded its time limit." in result.text
    assert site.sandbox.cancelled == site.sandbox.begun
    await check_end(bench)


async def test_a_run_of_an_erased_conversation_is_ended(bench: Bench) -> None:
    site = Site(bench)
    await site.work()

    bench.platform.detached.clear()
    await site.look()

    assert site.sandbox.cancelled == site.sandbox.begun
    assert not site.held.list_kept()


async def test_a_worker_that_loses_its_lease_before_the_run_is_detached_ends_it(bench: Bench) -> None:
    site = Site(bench, after_s=60.0)
    working = asyncio.create_task(site.work())
    await until(lambda: bool(site.sandbox.begun))

    assert site.worker.current is not None
    site.worker.current.lose_lease()
    await working

    assert site.sandbox.cancelled == site.sandbox.begun
    assert bench.platform.detached == {}


async def approve(bench: Bench) -> None:
    (approval_id,) = [block.body.approval_id for block in bench.blocks if isinstance(block.body, ApprovalRequestBody)]
    signal = IncomingSignal(bench.ids.signal(), SignalKind.APPROVE, "", approval_id=ApprovalId(approval_id))
    await bench.inbox.accept_signal(ANN, bench.conversation_id, signal, None)


async def test_an_approved_run_can_be_detached(bench: Bench) -> None:
    site = Site(bench, requires_approval=True)
    await site.work()
    assert bench.state().turns[0].status == "waiting"
    bench.keep_snapshot()

    await approve(bench)
    await site.work()
    assert (bench.turn_rows[0].status, bench.state().turns[0].status) == (TurnStatus.WAITING, "running")
    bench.keep_snapshot()
    await site.end()
    await site.work()
    await site.look()

    assert len(site.sandbox.begun) == 1
    await check_end(bench)


async def test_an_approved_run_that_a_steer_ends_may_have_run(bench: Bench) -> None:
    site = Site(bench, requires_approval=True)
    await site.work()
    bench.keep_snapshot()
    await approve(bench)
    await site.work()
    bench.keep_snapshot()

    await bench.signal(SignalKind.STEER, "Answer now.")
    await site.work()
    await site.look()

    assert [result.status for result in results(bench)] == ["cancelled"]
    assert "was ended, or not started" in results(bench)[0].text
    assert site.sandbox.cancelled == site.sandbox.begun
    await check_end(bench)


async def test_an_answer_to_another_call_does_not_keep_the_turn_from_waiting() -> None:
    """Both calls are of one reply, and the one that a person approves is made after the run."""
    bench = Bench(RUN + call("demo.send", {"text": "x"}), answer("Done."), fanout=True)
    await bench.say("Compute it and send it.")
    send = DemoTool("demo.send", effect=Effect.IRREVERSIBLE, strategy="exploitation", requires_approval=True)
    site = Site(bench, more=(send,))
    await site.work()
    bench.keep_snapshot()

    await approve(bench)
    await asyncio.wait_for(site.work(), 5)
    assert bench.turn_rows[0].status is TurnStatus.WAITING
    assert send.calls.total() == 0
    await site.end()
    await site.work()
    await site.look()

    assert send.calls.total() == 1
    await check_end(bench)


@pytest.mark.parametrize("what", ["row", "review"])
async def test_an_unanswered_question_keeps_no_program_from_its_start(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """An outage hides whether the program runs, so the turn does not wait for the person alone."""
    bench = Bench(RUN + call("demo.send", {"text": "x"}), answer("Done."), fanout=True)
    await bench.say("Compute it and send it.")
    send = DemoTool("demo.send", effect=Effect.IRREVERSIBLE, strategy="exploitation", requires_approval=True)
    site = Site(bench, more=(send,))

    with monkeypatch.context() as outage:
        if what == "row":
            outage.setattr(site.runs, "load", fail)
        else:
            review, failing = CallPolicy.review, []

            async def fail_once_asked(self: CallPolicy, *args: Any) -> Any:
                failing.append(args)
                return await (review(self, *args) if len(failing) <= 2 else fail())

            outage.setattr(CallPolicy, "review", fail_once_asked)
            site.worker.change(retries=RetryPolicy((0.0,)))
        await site.worker.run_one()
    assert (bench.turn_rows[0].status, site.sandbox.begun) == (TurnStatus.QUEUED, [])
    await asyncio.wait_for(site.work(), 5)

    assert (bench.turn_rows[0].status, len(site.sandbox.begun)) == (TurnStatus.WAITING, 1)
    assert bench.state().turns[0].status == "waiting"


@pytest.mark.parametrize("strategy", ["exploitation", "exploration"])
async def test_a_call_after_a_detached_one_has_not_begun(strategy: Strategy) -> None:
    bench = Bench(RUN + call("demo.send", {"text": "x"}), answer("Done."), fanout=True)
    await bench.say("Compute it and send it.")
    send = DemoTool("demo.send", effect=Effect.IRREVERSIBLE, strategy=strategy)
    site = Site(bench, more=(send,))
    await site.work()
    bench.keep_snapshot()

    await site.end()
    await site.work()
    await site.look()

    assert [result.status for result in results(bench)] == ["ok", "ok"]
    assert send.calls.total() == 1
    await check_end(bench)


async def test_a_call_that_was_cut_off_after_a_detached_one_is_not_repeated() -> None:
    bench = Bench(RUN + call("demo.send", {"text": "x"}), answer("Done."), fanout=True)
    await bench.say("Compute it and send it.")
    send = DemoTool("demo.send", effect=Effect.IRREVERSIBLE, strategy="exploitation")
    site, heir = Site(bench, more=(send,)), Site(bench, more=(send,))
    await site.work()
    bench.keep_snapshot()
    await site.end()
    send.go_on.clear()
    working = asyncio.create_task(site.work())
    await asyncio.wait_for(send.started.wait(), 5)
    site.worker.gate.dead.set()
    await working
    bench.expire_lease()

    await heir.work()
    bench.clock.advance(HOLD_S + 1)
    await heir.look()

    assert [result.status for result in results(bench)] == ["ok", "ambiguous"]
    assert send.calls.total() == 1
    await check_end(bench)


class RemoteSite:
    """A worker whose programs run on an engine that all workers share."""

    def __init__(
        self,
        bench: Bench,
        engine: MemoryEngine,
        *,
        unknown_s: float = 0.0,
        receipts: ReceiptSigner | None = None,
    ) -> None:
        self.bench = bench
        owner = f"worker-{len(bench.workers) + 1}"
        runs = MemoryDetachedRuns(bench.platform, owner=owner)
        profile = ExecutionProfile(engine="fargate")
        remote = RemoteRuns(
            "fargate", engine, {PROFILE: profile.limits}, starting=RetryPolicy((0.0, 0.0)), unknown_s=unknown_s
        )
        self.engine = remote
        engines = {remote.name: remote}
        self.watch = RunWatch(runs, engines, bench.doorbells, bench.clock, grace_s=0.0)
        calls = DetachedCalls(runs, engines, retries=RetryPolicy((0.0,)), collecting=RetryPolicy((0.0, 0.0)))
        history = WorkspaceHistory(MemoryArtifacts(bench.platform))
        tool = RunCodeTool(
            HeldSandbox(), bench.objects, history, build_program_tools(), {PROFILE: profile}, receipts, calls
        )
        bench.registry = ToolRegistry([tool])
        self.worker: BenchWorker = bench.hire()

    async def look(self, after_s: float = HOLD_S + 1) -> None:
        """Monitor the runs, when it is their time and that of workers which are gone."""
        self.bench.clock.advance(after_s)
        await self.watch.poll(self.engine)


SLEEPING = call(TOOL, {}, code="import time; time.sleep(60)")


@pytest.fixture
async def asleep() -> Bench:
    """A conversation whose program sleeps until its task ends."""
    bench = Bench(SLEEPING, answer("Done."))
    await bench.say("Compute it.")
    return bench


async def test_a_run_elsewhere_survives_the_worker_that_started_it(asleep: Bench) -> None:
    engine = MemoryEngine()
    first, second = RemoteSite(asleep, engine), RemoteSite(asleep, engine)
    await first.worker.work()
    assert asleep.turn_rows[0].status is TurnStatus.WAITING
    asleep.keep_snapshot()
    (run_id,) = engine.runs

    engine.end(run_id, build_recorded(stdout="42"))
    await second.look()
    await second.worker.work()
    await second.look()

    assert [result.status for result in results(asleep)] == ["ok"]
    assert "42" in results(asleep)[0].text
    assert (engine.runs, engine.results) == ({}, {})
    await check_end(asleep)


async def test_an_overdue_run_elsewhere_waits_for_a_result_that_can_not_be_read(
    asleep: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    asleep.keep_snapshot()
    (run_id,) = engine.runs

    await site.look(RUN_TIMEOUT_S + site.engine.allowance_s + 1)
    with monkeypatch.context() as outage:
        outage.setattr(site.engine, "collect", fail)
        await site.worker.run_one()
        assert (asleep.turn_rows[0].status, results(asleep)) == (TurnStatus.QUEUED, [])
    engine.end(run_id, build_recorded(stdout="42"))
    await site.worker.work()

    assert [result.status for result in results(asleep)] == ["ok"]


@pytest.mark.parametrize("image", ["", f"sha256:{'1a' * 32}"])
async def test_a_receipt_names_the_image_of_the_task_and_no_environment_of_a_worker(asleep: Bench, image: str) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine, receipts=ReceiptSigner(KEY, asleep.clock, Redactor()))
    await site.worker.work()
    asleep.keep_snapshot()
    (run_id,) = engine.runs

    engine.end(run_id)
    engine.states[f"task/{run_id}"] = TaskState("ended", "", 0, image=image)
    await site.look()
    await site.worker.work()

    payload = read_payload(asleep)
    assert (payload["backend"], payload["executor_image"], payload["environment"]) == ("fargate", image or None, None)


def give_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call gets a file and lacks another one; later calls would get something else."""
    given = [Inputs({"turn_1/in.csv": b"sent"}, (("turn_1/big.bin", "too large"),), ("There is no in.txt.",))]

    async def load(*_: object, **__: object) -> Inputs:
        return given.pop() if given else Inputs({"turn_1/in.csv": b"changed"}, ())

    monkeypatch.setattr(InputLoader, "load", load)


async def test_the_result_of_a_task_names_its_inputs_as_they_were_sent(
    asleep: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_inputs(monkeypatch)
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine, receipts=ReceiptSigner(KEY, asleep.clock, Redactor()))
    await site.worker.work()
    asleep.keep_snapshot()
    (run_id,) = engine.runs

    engine.end(run_id)
    await site.look()
    await site.worker.work()

    assert [file["sha256"] for file in read_payload(asleep)["inputs"]] == [hash_bytes(b"sent")]
    text = results(asleep)[0].text
    assert "There is no in.txt." in text
    assert "Not given to the program: turn_1/big.bin (too large)." in text


async def test_a_result_whose_inputs_nobody_knows_is_made_again(asleep: Bench) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    asleep.keep_snapshot()
    (run_id,) = engine.runs

    engine.end(run_id)
    del engine.runs[run_id]
    await site.look()
    await site.worker.work()

    assert list(engine.runs) == [run_id.removesuffix("_1") + "_2"]
    assert asleep.turn_rows[0].status is TurnStatus.WAITING


async def test_the_result_of_a_detached_run_says_what_it_was_not_given(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_inputs(monkeypatch)
    site = Site(bench)
    await site.work()
    bench.keep_snapshot()

    await site.end()
    await site.work()
    await site.look()

    assert "There is no in.txt." in results(bench)[0].text
    assert "Not given to the program: turn_1/big.bin (too large)." in results(bench)[0].text
    await check_end(bench)


async def test_a_start_that_was_cut_off_is_made_again(asleep: Bench) -> None:
    """The worker dies between its row and the name of the task."""
    engine = MemoryEngine()
    first, second = RemoteSite(asleep, engine), RemoteSite(asleep, engine)
    await first.worker.work()
    for row in asleep.platform.detached.values():
        row.run = replace(row.run, task="")
    asleep.keep_snapshot()
    await asleep.signal(SignalKind.STEER, "Wait.")
    await asleep.retract(asleep.waiting_signals()[0])

    await second.worker.work()

    assert len(engine.runs) == 1
    assert [row.run.task for row in asleep.platform.detached.values()] == [f"task/{run_id}" for run_id in engine.runs]


async def test_a_start_that_is_repeated_asks_its_engine_once_and_not_for_long(
    asleep: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, asked = MemoryEngine(), list[RemoteRun]()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    for row in asleep.platform.detached.values():
        row.run = replace(row.run, task="")
    asleep.keep_snapshot()
    await wake(asleep)
    start = engine.start

    async def start_never(run: RemoteRun) -> str:
        asked.append(run)
        await hang()
        return ""

    monkeypatch.setattr(detached_calls, "ANSWER_S", 0.2)
    monkeypatch.setattr(engine, "start", start_never)
    await asyncio.wait_for(site.worker.run_one(), 5)
    assert (asleep.turn_rows[0].status, results(asleep), len(asked)) == (TurnStatus.QUEUED, [], 1)
    monkeypatch.setattr(detached_calls, "ANSWER_S", 10.0)
    monkeypatch.setattr(engine, "start", start)
    engine.is_down = True
    await site.worker.run_one()
    assert (asleep.turn_rows[0].status, results(asleep)) == (TurnStatus.QUEUED, [])
    engine.is_down = False
    await site.worker.work()

    assert (asleep.turn_rows[0].status, len(engine.runs)) == (TurnStatus.WAITING, 1)


async def test_a_start_that_is_repeated_and_refused_for_good_is_an_error(
    asleep: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    for row in asleep.platform.detached.values():
        row.run = replace(row.run, task="")
    asleep.keep_snapshot()
    await wake(asleep)

    async def refuse(_: RemoteRun) -> str:
        raise RunRefused("AWS refused the request: AccessDenied.")

    monkeypatch.setattr(engine, "start", refuse)
    await asyncio.wait_for(site.worker.work(), 5)

    assert [(result.status, "AccessDenied" in result.text) for result in results(asleep)] == [("error", True)]


async def test_a_first_start_ends_before_its_call(asleep: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine()
    monkeypatch.setattr(remote_runs, "START_S", 0.05)
    monkeypatch.setattr(engine, "start", hang)
    site = RemoteSite(asleep, engine)

    await asyncio.wait_for(site.worker.work(), 5)

    assert "The engine did not answer in time." in results(asleep)[0].text


def fail_at_first(monkeypatch: pytest.MonkeyPatch, method: str, times: int = 2) -> None:
    """The first calls of a method of the rows fail: both that a worker makes before it gives up."""
    left, make = [Unavailable("The database is down.")] * times, getattr(MemoryDetachedRuns, method)

    async def call(runs: MemoryDetachedRuns, *given: object) -> object:
        if left:
            raise left.pop()
        return await make(runs, *given)

    monkeypatch.setattr(MemoryDetachedRuns, method, call)


async def test_a_task_whose_name_could_not_be_saved_is_found_again(
    asleep: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    fail_at_first(monkeypatch, "save_task")

    await site.worker.work()

    assert (asleep.turn_rows[0].status, results(asleep)) == (TurnStatus.WAITING, [])
    (run_id,) = engine.runs
    assert [row.run.task for row in asleep.platform.detached.values()] == [f"task/{run_id}"]
    asleep.keep_snapshot()
    engine.end(run_id)
    await site.look()
    await site.worker.work()
    await site.look()
    assert [result.status for result in results(asleep)] == ["ok"]
    await check_end(asleep)


async def test_a_turn_does_not_wait_for_a_run_that_nobody_has_started(
    asleep: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker dies between the row and the task, and the next one can't read the row."""
    engine = MemoryEngine()
    first, second = RemoteSite(asleep, engine), RemoteSite(asleep, engine)
    await first.worker.work()
    for row in asleep.platform.detached.values():
        row.run = replace(row.run, task="")
    asleep.keep_snapshot()
    await asleep.signal(SignalKind.STEER, "Wait.")
    await asleep.retract(asleep.waiting_signals()[0])
    fail_at_first(monkeypatch, "load")

    await second.worker.work()

    assert asleep.turn_rows[0].status is TurnStatus.WAITING
    assert [row.run.task for row in asleep.platform.detached.values()] == [f"task/{run_id}" for run_id in engine.runs]


@pytest.mark.parametrize("stops", [1, MAX_STARTS])
async def test_a_task_that_was_stopped_by_others_is_started_again(asleep: Bench, stops: int) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    for _ in range(stops):
        asleep.keep_snapshot()
        *_, run_id = engine.runs
        await engine.stop(f"task/{run_id}", "The machine is retired.")
        await site.look()
        await site.worker.work()

    if stops < MAX_STARTS:
        assert [*engine.runs][-1].endswith("_2")
        assert asleep.turn_rows[0].status is TurnStatus.WAITING
    else:
        assert [result.status for result in results(asleep)] == ["error"]
        assert "started 3 times and was lost each time" in results(asleep)[0].text


async def test_a_task_that_was_killed_is_started_again(asleep: Bench) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    asleep.keep_snapshot()
    (first,) = engine.runs

    engine.states[f"task/{first}"] = TaskState("ended", "The machine was reclaimed.", 137)
    await site.look()
    await site.worker.work()

    second = first.removesuffix("_1") + "_2"
    assert second in engine.runs
    engine.end(second)
    await site.look()
    await site.worker.work()
    await site.look()
    assert [result.status for result in results(asleep)] == ["ok"]
    await check_end(asleep)


async def test_a_receipt_names_the_start_whose_result_counts(asleep: Bench) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine, receipts=ReceiptSigner(KEY, asleep.clock, Redactor()))
    await site.worker.work()
    asleep.keep_snapshot()
    (first,) = engine.runs
    engine.states[f"task/{first}"] = TaskState("ended", "The machine was reclaimed.", 137)
    await site.look()
    began_at = iso(asleep.clock.now())[:SECONDS]
    await site.worker.work()

    second = first.removesuffix("_1") + "_2"
    engine.end(second)
    await site.look()
    await site.worker.work()

    payload = read_payload(asleep)
    assert (payload["run_id"], payload["began_at"][:SECONDS]) == (second, began_at)
    assert payload["ended_at"][:SECONDS] > began_at


async def test_a_receipt_of_a_detached_run_names_it_and_its_beginning(bench: Bench) -> None:
    site = Site(bench, receipts=ReceiptSigner(KEY, bench.clock, Redactor()))
    began_at = iso(bench.clock.now())[:SECONDS]
    await site.work()
    bench.keep_snapshot()
    bench.clock.advance(25)
    ended_at = iso(bench.clock.now())[:SECONDS]

    await site.end()
    await site.work()

    payload = read_payload(bench)
    assert [payload["run_id"]] == site.sandbox.begun
    assert [payload[name][:SECONDS] for name in ("began_at", "ended_at")] == [began_at, ended_at]


async def test_a_person_ends_a_run_elsewhere(asleep: Bench) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    asleep.keep_snapshot()
    (run_id,) = engine.runs

    await asleep.signal(SignalKind.CANCEL)
    await site.worker.work()
    await site.look()

    assert [task for task, _ in engine.stopped] == [f"task/{run_id}"]
    assert engine.runs == {}
    await check_end(asleep, Outcome.CANCELLED)


async def test_an_engine_that_is_down_delays_only_what_needs_it(asleep: Bench) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    asleep.keep_snapshot()
    (run_id,) = engine.runs
    engine.end(run_id)

    engine.is_down = True
    await site.look()
    assert asleep.turn_rows[0].status is TurnStatus.WAITING
    engine.is_down = False
    await site.look()
    await site.worker.work()
    await site.look()

    await check_end(asleep)


async def test_a_run_that_the_engine_does_not_start_is_an_error_for_the_model(asleep: Bench) -> None:
    engine = MemoryEngine(is_down=True)
    site = RemoteSite(asleep, engine)

    await site.worker.work()
    engine.is_down = False
    await site.look()

    (result,) = results(asleep)
    assert result.status == "error"
    assert "It is down." in result.text
    await check_end(asleep)


async def test_what_is_left_of_runs_without_a_row_is_removed(asleep: Bench) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    (kept,) = engine.runs
    erased = RemoteRun(replace(engine.runs[kept].launch, execution_id="exec_erased_1"), ())
    await engine.start(erased)
    engine.ages_s = {kept: 3_600, "exec_erased_1": 3_600}

    await site.watch.sweep(site.engine)

    assert list(engine.runs) == [kept]
    assert [task for task, _ in engine.stopped] == ["task/exec_erased_1"]


async def test_what_can_not_be_removed_leaves_the_sweep_to_others(
    asleep: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    (kept,) = engine.runs
    for name in ("exec_a_1", "exec_b_1"):
        await engine.start(RemoteRun(replace(engine.runs[kept].launch, execution_id=name), ()))
    engine.ages_s = dict.fromkeys(engine.runs, 3_600)
    stop = engine.stop

    async def refuse_first(task: str, reason: str) -> None:
        if task == "task/exec_a_1":
            raise EngineUnavailable("AWS refused the request: AccessDenied.")
        await stop(task, reason)

    monkeypatch.setattr(engine, "stop", refuse_first)
    with pytest.raises(EngineUnavailable, match="AccessDenied"):
        await site.engine.sweep(site.watch._runs.load_known)

    assert list(engine.runs) == [kept, "exec_a_1"]


async def test_a_program_with_a_network_is_not_repeated() -> None:
    bench = Bench(RUN, answer("Done."))
    await bench.say("Compute it.")
    profile = {PROFILE: ExecutionProfile(network=("api.example.com",))}
    sandbox, history = HeldSandbox(), WorkspaceHistory(MemoryArtifacts(bench.platform))
    bench.registry = ToolRegistry([RunCodeTool(sandbox, bench.objects, history, build_program_tools(), profile)])
    lost, heir = bench.hire(), bench.hire()
    working = asyncio.create_task(lost.work())
    await until(lambda: bool(sandbox.begun))
    lost.gate.dead.set()
    await working
    bench.expire_lease()

    await heir.work()

    assert [result.status for result in results(bench)] == ["ambiguous"]
    assert len(sandbox.begun) == 1
    await check_end(bench)


async def test_a_result_that_was_stored_while_nobody_could_ask_is_used(asleep: Bench) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    asleep.keep_snapshot()
    (run_id,) = engine.runs
    engine.end(run_id)

    engine.is_down = True
    await site.look(after_s=7_200)
    engine.is_down = False
    await site.worker.work()
    await site.look()

    assert [result.status for result in results(asleep)] == ["ok"]
    await check_end(asleep)


async def test_a_task_that_its_engine_does_not_know_yet_goes_on(asleep: Bench) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine, unknown_s=60.0)
    await site.worker.work()
    (run_id,) = engine.runs

    engine.states[f"task/{run_id}"] = TaskState("unknown")
    await site.look()

    assert asleep.turn_rows[0].status is TurnStatus.WAITING


async def test_a_run_whose_engine_is_not_configured_any_more_ends_when_it_is_overdue(asleep: Bench) -> None:
    site, other = RemoteSite(asleep, MemoryEngine()), Site(asleep)
    await site.worker.work()
    asleep.keep_snapshot()

    asleep.clock.advance(7_200)
    await other.look()

    assert asleep.turn_rows[0].status is TurnStatus.QUEUED
    (row,) = asleep.platform.detached.values()
    assert (row.run.ended_as, row.run.detail) == ("overdue", "The engine fargate is not configured any more.")


async def test_a_worker_that_has_just_started_leaves_runs_to_their_workers(bench: Bench) -> None:
    site, heir = Site(bench), Site(bench, grace_s=HOLD_S)
    await site.work()
    bench.clock.advance(HOLD_S + 1)

    await heir.look()
    assert bench.turn_rows[0].status is TurnStatus.WAITING
    await site.look()
    bench.clock.advance(HOLD_S / 2)
    await site.look()
    bench.clock.advance(HOLD_S / 2 + 1)
    await heir.look()
    assert bench.turn_rows[0].status is TurnStatus.WAITING

    bench.clock.advance(HOLD_S + 1)
    await heir.look()
    assert bench.turn_rows[0].status is TurnStatus.QUEUED


async def test_a_poll_of_one_engine_leaves_the_runs_of_others(asleep: Bench) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    runs, local = MemoryDetachedRuns(asleep.platform), LocalRuns(HeldSandbox(), asleep.objects, {})
    engines = {local.name: local, site.engine.name: site.engine}
    watch = RunWatch(runs, engines, asleep.doorbells, asleep.clock, grace_s=0.0)
    await site.worker.work()
    asleep.keep_snapshot()
    (run_id,) = engine.runs

    asleep.clock.advance(7_200)
    await watch.poll(local)
    assert asleep.turn_rows[0].status is TurnStatus.WAITING
    assert DETACHED_RUNS.labels(local.name)._value.get() == 0
    await watch.poll(site.engine)
    await site.worker.work()
    await watch.poll(local)
    assert (engine.stopped, list(engine.runs)) == ([], [run_id])
    await watch.poll(site.engine)

    assert [task for task, _ in engine.stopped] == [f"task/{run_id}"]
    assert engine.runs == {}
    await check_end(asleep)


async def test_an_unwanted_run_is_stopped_before_its_engine_is_asked_again(asleep: Bench) -> None:
    engine = MemoryEngine()
    site = RemoteSite(asleep, engine)
    await site.worker.work()
    asleep.keep_snapshot()
    (run_id,) = engine.runs
    await site.look(after_s=600)

    await asleep.signal(SignalKind.CANCEL)
    await site.worker.work()
    await site.look(after_s=1)

    assert [task for task, _ in engine.stopped] == [f"task/{run_id}"]
    await check_end(asleep, Outcome.CANCELLED)


NETWORKED = ExecutionProfile(network=("api.example.com",))
REACHING = call(TOOL, {"profile": "net"}, code="print(1)")


@pytest.mark.parametrize("requires_approval", [False, True])
async def test_a_program_with_a_network_may_have_run_although_others_detach(requires_approval: bool) -> None:
    bench = Bench(REACHING, answer("Done."))
    await bench.say("Fetch it.")
    lost, heir = (Site(bench, networked=NETWORKED, requires_approval=requires_approval) for _ in range(2))
    if requires_approval:
        await lost.work()
        await approve(bench)
    working = asyncio.create_task(lost.work())
    await until(lambda: bool(lost.sandbox.begun))
    lost.worker.gate.dead.set()
    await working
    bench.expire_lease()

    await bench.signal(SignalKind.STEER, "Answer now.")
    await heir.work()

    assert [result.status for result in results(bench)] == ["ambiguous"]
    assert heir.sandbox.begun == []
    await check_end(bench)


async def test_a_run_that_has_not_begun_is_reported_as_such() -> None:
    bench = Bench(call("demo.send", {"text": "x"}) + RUN, answer("Done."), fanout=True)
    await bench.say("Send it and compute it.")
    send = DemoTool("demo.send", effect=Effect.IRREVERSIBLE, strategy="exploitation")
    send.go_on.clear()
    site = Site(bench, more=(send,))
    working = asyncio.create_task(site.work())
    await asyncio.wait_for(send.started.wait(), 5)

    await bench.signal(SignalKind.STEER, "Answer now.")
    send.go_on.set()
    await working

    assert [result.status for result in results(bench)][1:] == ["cancelled"]
    assert results(bench)[1].text == NOT_STARTED
    assert site.sandbox.begun == []


class WatchedEngine:
    """Runs that have all ended; `discard` never returns, a check takes `check_s`, and recording an end a second less
    than a poll may take."""

    def __init__(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, *, check_s: float = 0.0, hold_s: float = HOLD_S
    ) -> None:
        self.bench, self.check_s, self.ended, self.stopped = bench, check_s, list[str](), list[str]()
        self.engine = RemoteRuns("fargate", MemoryEngine(), {})
        runs = MemoryDetachedRuns(bench.platform)
        about = "fargate", "task", None, "", 5.0
        settled = [WatchedRun(f"settled-{n}", *about, settled=True, overdue=False) for n in range(3)]
        going = [WatchedRun(f"going-{n}", *about, settled=False, overdue=False) for n in range(2)]

        async def hold(*_: object, **__: object) -> list[WatchedRun]:
            return [run for run in (*settled, *going) if run.run_id not in self.ended]

        async def end(run_id: str, *_: object) -> None:
            self.ended.append(run_id)
            self.bench.clock.advance(max(0.0, hold_s / 3 - 1))

        async def stop(run_id: str, _: str) -> None:
            self.stopped.append(run_id)

        async def check(asked: Sequence[WatchedRun]) -> dict[str, RunEnd]:
            bench.clock.advance(self.check_s)
            return {run.run_id: RunEnd("finished") for run in asked}

        async def discard(_: WatchedRun) -> None:
            self.bench.clock.advance(hold_s / 3)
            await asyncio.Event().wait()

        for place, method in (
            (runs, hold),
            (runs, end),
            (self.engine, stop),
            (self.engine, check),
            (self.engine, discard),
        ):
            monkeypatch.setattr(place, method.__name__, method)
        engines = {"fargate": self.engine}
        self.watch = RunWatch(runs, engines, bench.doorbells, bench.clock, hold_s=hold_s, grace_s=0.0)


async def test_a_store_that_hangs_delays_no_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll is over before another worker takes the runs, however short a hold is."""
    watched = WatchedEngine(bench, monkeypatch, hold_s=0.4)

    await asyncio.wait_for(watched.watch.poll(watched.engine), 5)

    assert watched.ended[0] == "going-0"


async def test_a_store_that_hangs_delays_no_end_of_a_program(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = WatchedEngine(bench, monkeypatch, hold_s=0.4)
    settled = [f"settled-{n}" for n in range(3)]

    await asyncio.wait_for(watched.watch.poll(watched.engine), 5)
    assert watched.stopped == settled
    await asyncio.wait_for(watched.watch.poll(watched.engine), 5)

    assert watched.stopped == settled


async def test_a_poll_ends_in_time_and_the_next_one_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = WatchedEngine(bench, monkeypatch, check_s=2.0)

    await watched.watch.poll(watched.engine)
    assert watched.ended == ["going-0"]
    await watched.watch.poll(watched.engine)

    assert watched.ended == ["going-0", "going-1"]


async def test_a_worker_that_stops_takes_over_no_runs(bench: Bench) -> None:
    site, stopping = Site(bench), Site(bench)
    await site.work()
    (row,) = bench.platform.detached.values()
    bench.clock.advance(HOLD_S + 1)

    stopping.held._runs["exec_own_1"] = local._Run(None, has_row=True)
    await stopping.watch.close()

    assert row.holder == "worker-1"


async def test_a_worker_that_stops_loses_only_runs_that_go_on(bench: Bench) -> None:
    site = Site(bench)
    lost = DETACHED_RUNS_ENDED.labels(site.held.name, "lost")
    before = lost._value.get()
    await site.work()
    await site.end()

    await site.watch.close()

    (row,) = bench.platform.detached.values()
    assert (row.run.ended_as, site.held.list_kept()) == ("finished", ())
    assert lost._value.get() == before
    bench.clock.advance(HOLD_S + 1)
    await site.work()
    assert [result.status for result in results(bench)] == ["ok"]


async def test_an_outage_of_the_database_is_no_failure_of_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(bench)
    before = DETACHED_RUNS_FAILED._value.get()

    monkeypatch.setattr(MemoryDetachedRuns, "hold", fail)
    await site.look()

    assert DETACHED_RUNS_FAILED._value.get() == before


async def test_a_sandbox_that_has_no_room_after_a_while_is_asked_again(bench: Bench) -> None:
    site = Site(bench)
    site.sandbox.refuses = True
    await site.work()
    bench.keep_snapshot()
    await site.end()
    site.sandbox.refuses = False
    site.sandbox.end.clear()

    await site.work()
    await site.end()
    await site.work()
    await site.look()

    assert len(site.sandbox.begun) == 2
    assert [result.status for result in results(bench)] == ["ok"]
    await check_end(bench)
