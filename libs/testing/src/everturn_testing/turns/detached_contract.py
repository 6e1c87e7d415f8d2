"""The contract of detached runs as tests: a subclass defines `harness`, `approvals`, and the `runs` of two workers."""

import pytest

from everturn.core.errors import StaleFence
from everturn.core.ids import CallId
from everturn.events.cursor import EventCursor
from everturn.timeline.turns import SignalKind, TurnStatus
from everturn.turns.detached import MAX_DETAIL_CHARS, MAX_OF_PERSON, DetachedRuns, RunStart
from everturn.turns.model import Claim, Commit, Effect, EffectChange, EffectState
from everturn.turns.ports import Approvals
from everturn_testing.turns.approvals_contract import LONG_S, answer, ask, status_of
from everturn_testing.turns.harness import STRANGERS, Harness, closing

ENGINES = ("worker", "other")


def build_start(
    claim: Claim, call_id: str = "call_1", *, starts: int = 1, time_limit_s: float = LONG_S, task: str = "task-1"
) -> RunStart:
    """A start whose id names its turn, call and number."""
    assert claim.turn_id is not None
    run_id = f"{claim.turn_id}_{call_id}_{starts}"
    return RunStart(claim.turn_id, CallId(call_id), run_id, starts, "worker", time_limit_s, task)


async def settle_call(harness: Harness, claim: Claim, state: EffectState, call_id: str = "call_1") -> None:
    """Write the call's row of the ledger, as the commits of its decision and of its result do."""
    assert claim.turn_id is not None
    change = EffectChange(CallId(call_id), "exec_tools.run", "0" * 64, Effect.IDEMPOTENT, state)
    await harness.timelines.commit(
        claim.lease, Commit(claim.turn_id, (), EventCursor(claim.lease.fence, 1), effects=(change,))
    )


class DetachedRunsContract:
    """Required of every DetachedRuns together with its Approvals, Inbox, Leases and Timelines. `runs` is that of the
    worker with the lease, `others` that of another one."""

    async def test_a_turn_waits_for_its_run_and_continues_when_it_has_ended(
        self, harness: Harness, approvals: Approvals, runs: DetachedRuns, others: DetachedRuns
    ) -> None:
        claim = await harness.start_turn()
        start = build_start(claim, task="")
        await runs.save_start(claim.lease, start)
        await runs.save_task(claim.lease, start.run_id, "task-7")

        assert await approvals.try_park(claim.lease)
        assert await harness.rival.try_claim(claim.lease.conversation_id) is None
        ring = await others.end(start.run_id, "finished")

        assert ring is not None
        assert ring.conversation_id == claim.lease.conversation_id
        again = await harness.rival.try_claim(claim.lease.conversation_id)
        assert again is not None
        assert (again.turn_id, again.attempt) == (claim.turn_id, 0)
        run = await others.load(harness.principal, start.turn_id, start.call_id)
        assert run is not None
        assert (run.run_id, run.task, run.starts, run.ended_as) == (start.run_id, "task-7", 1, "finished")
        assert run.age_s >= 0

    async def test_a_turn_is_not_parked_for_a_run_that_has_ended(
        self, harness: Harness, approvals: Approvals, runs: DetachedRuns
    ) -> None:
        claim = await harness.start_turn()
        start = build_start(claim)
        await runs.save_start(claim.lease, start)

        assert await runs.end(start.run_id, "finished") is None

        assert not await approvals.try_park(claim.lease)
        assert await status_of(harness, claim) is TurnStatus.RUNNING

    async def test_a_turn_is_not_parked_for_a_run_without_a_task(
        self, harness: Harness, approvals: Approvals, runs: DetachedRuns
    ) -> None:
        """Its start was cut off, and has to be repeated, whatever else the turn could wait for."""
        claim = await harness.start_turn()
        for call_id in ("call_1", "call_2"):
            await settle_call(harness, claim, EffectState.INTENDED, call_id)
        start = build_start(claim, task="")
        await runs.save_start(claim.lease, start)

        assert not await approvals.try_park(claim.lease)
        await runs.save_start(claim.lease, build_start(claim, "call_2"))
        assert not await approvals.try_park(claim.lease)

        await runs.save_task(claim.lease, start.run_id, "task-7")
        assert await approvals.try_park(claim.lease)

    async def test_a_turn_is_not_parked_for_a_run_whose_call_has_a_result(
        self, harness: Harness, approvals: Approvals, runs: DetachedRuns
    ) -> None:
        claim = await harness.start_turn()
        await settle_call(harness, claim, EffectState.INTENDED)
        await runs.save_start(claim.lease, build_start(claim))
        await settle_call(harness, claim, EffectState.FAILED)

        assert not await approvals.try_park(claim.lease)

    async def test_the_first_end_counts(self, harness: Harness, runs: DetachedRuns) -> None:
        claim = await harness.start_turn()
        start = build_start(claim)
        await runs.save_start(claim.lease, start)
        await runs.end(start.run_id, "lost", "x" * (MAX_DETAIL_CHARS + 1))

        assert await runs.end(start.run_id, "finished", "late") is None
        assert await runs.end("unknown", "finished") is None

        run = await runs.load(harness.principal, start.turn_id, start.call_id)
        assert run is not None
        assert (run.ended_as, run.detail) == ("lost", "x" * MAX_DETAIL_CHARS)

    @pytest.mark.parametrize("kind", [SignalKind.STEER, SignalKind.CANCEL])
    async def test_a_steer_or_a_cancel_wakes_the_turn_while_its_run_goes_on(
        self, harness: Harness, approvals: Approvals, runs: DetachedRuns, kind: SignalKind
    ) -> None:
        claim = await harness.start_turn()
        await runs.save_start(claim.lease, build_start(claim))
        await approvals.try_park(claim.lease)

        receipt = await harness.signal(claim.lease.conversation_id, kind, "Stop.")

        assert receipt.ring
        assert await status_of(harness, claim) is TurnStatus.QUEUED

    async def test_a_followup_waits_with_the_turn(
        self, harness: Harness, approvals: Approvals, runs: DetachedRuns
    ) -> None:
        claim = await harness.start_turn()
        await runs.save_start(claim.lease, build_start(claim))
        await approvals.try_park(claim.lease)

        assert not (await harness.say("Also this.", claim.lease.conversation_id)).ring

        assert await status_of(harness, claim) is TurnStatus.WAITING

    async def test_a_turn_can_wait_for_a_person_and_a_run(
        self, harness: Harness, approvals: Approvals, runs: DetachedRuns
    ) -> None:
        claim = await harness.start_turn()
        approval_id = await ask(harness, approvals, claim)
        await runs.save_start(claim.lease, build_start(claim))
        await approvals.try_park(claim.lease)

        receipt = await answer(harness, claim.lease.conversation_id, approval_id, SignalKind.APPROVE)

        assert receipt.ring
        assert await status_of(harness, claim) is TurnStatus.QUEUED

    async def test_a_turn_with_a_run_that_has_ended_waits_for_nothing_else(
        self, harness: Harness, approvals: Approvals, runs: DetachedRuns
    ) -> None:
        claim = await harness.start_turn()
        for call_id in ("call_1", "call_2"):
            await settle_call(harness, claim, EffectState.INTENDED, call_id)
            await runs.save_start(claim.lease, build_start(claim, call_id))
        await ask(harness, approvals, claim)
        await runs.end(build_start(claim).run_id, "finished")

        assert not await approvals.try_park(claim.lease)

        await settle_call(harness, claim, EffectState.COMMITTED)
        assert await approvals.try_park(claim.lease)

    async def test_a_person_can_have_a_few_detached_runs_at_once(self, harness: Harness, runs: DetachedRuns) -> None:
        claim = await harness.start_turn()
        starts = [build_start(claim, f"call_{n}") for n in range(MAX_OF_PERSON + 1)]

        assert [await runs.save_start(claim.lease, start) for start in starts] == [True] * MAX_OF_PERSON + [False]

        assert await runs.save_start(claim.lease, build_start(claim, "call_0", starts=2))
        await runs.end(starts[1].run_id, "finished")
        assert await runs.save_start(claim.lease, starts[-1])

    async def test_another_start_replaces_a_lost_one(
        self, harness: Harness, approvals: Approvals, runs: DetachedRuns
    ) -> None:
        claim = await harness.start_turn()
        first, second = build_start(claim), build_start(claim, starts=2, task="task-2")
        await runs.save_start(claim.lease, first)
        await runs.end(first.run_id, "lost", "The task was killed.")

        await runs.save_start(claim.lease, second)

        run = await runs.load(harness.principal, second.turn_id, second.call_id)
        assert run is not None
        assert (run.run_id, run.task, run.starts, run.ended_as, run.detail) == (second.run_id, "task-2", 2, None, "")
        assert await approvals.try_park(claim.lease)
        assert await runs.end(first.run_id, "finished") is None
        assert await status_of(harness, claim) is TurnStatus.WAITING

    async def test_a_worker_that_lost_its_lease_records_nothing(self, harness: Harness, runs: DetachedRuns) -> None:
        claim = await harness.start_turn()
        start = build_start(claim)
        await runs.save_start(claim.lease, start)
        await harness.expire_lease(claim.lease.conversation_id)
        assert await harness.rival.try_claim(claim.lease.conversation_id) is not None

        with pytest.raises(StaleFence):
            await runs.save_start(claim.lease, build_start(claim, starts=2))
        with pytest.raises(StaleFence):
            await runs.save_task(claim.lease, start.run_id, "task-1")

    async def test_a_run_is_held_by_one_worker_until_that_stays_away(
        self, harness: Harness, runs: DetachedRuns, others: DetachedRuns
    ) -> None:
        claim = await harness.start_turn()
        await settle_call(harness, claim, EffectState.INTENDED)
        start = build_start(claim)
        await runs.save_start(claim.lease, start)

        assert start.run_id not in [run.run_id for run in await others.hold(ENGINES)]
        (held,) = [run for run in await runs.hold(ENGINES) if run.run_id == start.run_id]
        assert (held.engine, held.task, held.ended_as, held.settled, held.overdue) == (
            "worker",
            "task-1",
            None,
            False,
            False,
        )

        await harness.expire_holds()
        assert start.run_id not in [run.run_id for run in await others.hold(ENGINES, takes_over=False)]
        assert start.run_id not in [run.run_id for run in await others.hold(["other"])]
        assert start.run_id in [run.run_id for run in await others.hold(ENGINES)]
        assert start.run_id not in [run.run_id for run in await runs.hold(ENGINES)]

    async def test_a_run_is_settled_once_its_call_has_a_result(self, harness: Harness, runs: DetachedRuns) -> None:
        claim = await harness.start_turn()
        await settle_call(harness, claim, EffectState.INTENDED)
        start = build_start(claim)
        await runs.save_start(claim.lease, start)
        await settle_call(harness, claim, EffectState.FAILED)

        (held,) = [run for run in await runs.hold(ENGINES) if run.run_id == start.run_id]

        assert held.settled

    async def test_a_run_is_settled_once_its_turn_has_ended(self, harness: Harness, runs: DetachedRuns) -> None:
        claim = await harness.start_turn()
        start = build_start(claim)
        await runs.save_start(claim.lease, start)
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))

        (held,) = [run for run in await runs.hold(ENGINES) if run.run_id == start.run_id]

        assert held.settled
        assert set(await runs.load_known([start.run_id, "unknown"])) == {start.run_id}
        await runs.remove(start.run_id)
        assert not await runs.load_known([start.run_id])
        assert start.run_id not in [run.run_id for run in await runs.hold(ENGINES)]

    async def test_a_run_that_takes_too_long_is_overdue(self, harness: Harness, runs: DetachedRuns) -> None:
        claim = await harness.start_turn()
        start = build_start(claim, time_limit_s=0.0)
        await runs.save_start(claim.lease, start)

        (held,) = [run for run in await runs.hold(ENGINES) if run.run_id == start.run_id]

        assert held.overdue

    async def test_an_overdue_run_is_found_by_workers_without_its_engine(
        self, harness: Harness, runs: DetachedRuns, others: DetachedRuns
    ) -> None:
        claim = await harness.start_turn()
        start = build_start(claim, time_limit_s=0.0)
        await runs.save_start(claim.lease, start)
        await harness.expire_holds()

        assert start.run_id in [run.run_id for run in await others.hold(["other"])]

    async def test_strangers_see_no_runs(self, harness: Harness, runs: DetachedRuns) -> None:
        claim = await harness.start_turn()
        start = build_start(claim)
        await runs.save_start(claim.lease, start)

        for stranger in STRANGERS:
            assert await runs.load(stranger, start.turn_id, start.call_id) is None
