"""Workers that die, freeze, leave, or can't reach their servers: another one goes on, and nothing shows it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.plans import build_dag_bench, plan
from turn_harness.replies import answer, call, cut_answer
from turn_harness.signals import run_claimed_for_cancel
from turn_harness.tools import DemoTool

from chat_proc.catalog.call_policy import CallPolicy
from chat_proc.catalog.tool import ToolRegistry
from chat_proc.turn.titling import TurnTitle
from chat_proc.worker.runner import MAX_ATTEMPTS
from everturn.core.errors import Unavailable
from everturn.core.identity import Lane
from everturn.events.model import ChatRewind
from everturn.timeline.blocks import CompletionBody, PromptBody, ToolCallBody, ToolResultBody
from everturn.timeline.turns import Outcome, SignalKind, TurnStatus
from everturn.turns.model import Commit, Effect, EffectState
from everturn_testing.core import FixedClock
from everturn_testing.models.scripted_model import Call, Pause, Say, ScriptedModel

SCENARIO = (call("demo.echo", {"text": "x"}, notes="Look.", thinking="Hm."), answer("Done.", thinking="Good."))


def build(*, effect: Effect = Effect.PURE) -> tuple[Bench, DemoTool]:
    echo = DemoTool(effect=effect)
    return Bench(*SCENARIO, *SCENARIO, tools=[echo]), echo


async def steps_of_the_scenario() -> int:
    bench, _ = build()
    await bench.say("Hello.")
    worker = bench.hire()
    await worker.work()
    return worker.gate.steps


async def test_a_worker_may_die_at_any_step() -> None:
    for step in range(1, await steps_of_the_scenario() + 1):
        bench, _ = build()
        await bench.say("Hello.")
        await bench.hire(dies_at=step).work()
        bench.expire_lease()

        await bench.work()

        assert bench.exits[0].outcome is Outcome.COMPLETED, step
        assert bench.texts(CompletionBody) == ["Done."], step
        await check_conversation(bench, ends_may_repeat=True)


async def test_a_worker_may_die_in_the_middle_of_what_another_left() -> None:
    for step in range(1, await steps_of_the_scenario() + 1, 5):
        bench = Bench(*SCENARIO, *SCENARIO, *SCENARIO, tools=[DemoTool()])
        await bench.say("Hello.")
        await bench.hire(dies_at=step).work()
        bench.expire_lease()
        await bench.hire(dies_at=step // 2 + 1).work()
        bench.expire_lease()

        await bench.work()

        assert bench.exits[0].outcome is Outcome.COMPLETED, step
        await check_conversation(bench, ends_may_repeat=True)


async def test_a_pure_call_that_was_begun_runs_again_with_the_same_id() -> None:
    bench, echo = build()
    await bench.say("Hello.")
    await bench.hire(failpoint="turn.before_c2:1:raise").work()
    bench.expire_lease()

    await bench.work()

    assert list(echo.calls.values()) == [2]
    await check_conversation(bench)


async def test_an_irreversible_call_that_was_begun_is_ambiguous() -> None:
    bench, echo = build(effect=Effect.IRREVERSIBLE)
    await bench.say("Hello.")
    await bench.hire(failpoint="turn.in_tool:1:raise").work()
    bench.expire_lease()

    await bench.work()

    assert echo.calls.total() == 0
    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert result.status == "ambiguous"
    assert [row.state for row in bench.platform.effects.values()] == [EffectState.AMBIGUOUS]
    assert "It is unknown whether the call took effect" in str(bench.model.requests[1])
    await check_conversation(bench)


async def test_a_worker_that_died_before_the_turn_was_opened_has_made_no_call() -> None:
    bench = Bench(answer("Done."))
    await bench.say("Hello.")
    await bench.hire(dies_at=1).work()
    bench.expire_lease()

    await bench.work()

    assert len(bench.platform.usage) == len(bench.model.requests) == 1
    await check_conversation(bench)


async def test_a_turn_claimed_for_its_cancel_calls_no_model() -> None:
    names = [f"shop.t{n}" for n in range(30)]
    title = ScriptedModel(["A title"])
    bench = Bench("{}", tools=[DemoTool(name) for name in names], selectable=names, title_model=title)
    await bench.say("Hello.")
    await bench.signal(SignalKind.CANCEL)

    await run_claimed_for_cancel(bench)

    assert bench.model.requests == title.requests == []
    assert bench.exits[0].outcome is Outcome.CANCELLED
    await check_conversation(bench)


async def test_the_end_is_announced_although_the_title_can_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    load, results = TurnTitle.load, [Unavailable("the database restarts"), None]

    async def fail_after_the_commit(title: TurnTitle) -> str:
        if (error := results.pop()) is not None:
            raise error
        return await load(title)

    monkeypatch.setattr(TurnTitle, "load", fail_after_the_commit)
    bench, _ = build()
    await bench.say("Hello.")

    await bench.work()

    assert not results
    assert "chat.complete" in [event.type for event in await bench.published()]
    await check_conversation(bench)


async def test_a_cancelled_turn_does_not_repeat_a_call() -> None:
    bench, echo = build(effect=Effect.IDEMPOTENT)
    await bench.say("Hello.")
    await bench.hire(failpoint="turn.in_tool:1:raise").work()
    bench.expire_lease()
    await bench.signal(SignalKind.CANCEL)

    await run_claimed_for_cancel(bench)

    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert (echo.calls.total(), result.status) == (0, "cancelled")
    assert bench.exits[0].outcome is Outcome.CANCELLED
    await check_conversation(bench)


@pytest.mark.parametrize("kept", [["demo.echo", "demo.pay"], ["demo.pay"], ["demo.echo"], []])
async def test_an_irreversible_call_is_made_once_whatever_tools_the_next_worker_has(kept: list[str]) -> None:
    echo, pay = DemoTool(strategy="exploration"), DemoTool("demo.pay", effect=Effect.IRREVERSIBLE)
    echo.go_on.clear()
    bench = Bench([Call("demo__echo"), Call("demo__pay")], "Done.", tools=[echo, pay], codec="native")
    await bench.say("Hello.")
    worker = bench.hire()

    async def die_at_the_first_result(commit: Commit) -> None:
        if any(isinstance(block.body, ToolResultBody) for block in commit.blocks):
            worker.gate.dead.set()
            await asyncio.Event().wait()

    worker.timelines.before_commit = die_at_the_first_result
    await worker.run_one()
    assert pay.effects.total() == 1
    echo.go_on.set()
    bench.expire_lease()
    bench.registry = ToolRegistry([tool for tool in (echo, pay) if tool.spec.tool_id in kept])

    await bench.work()

    results = {b.body.tool_id: b.body.status for b in bench.blocks if isinstance(b.body, ToolResultBody)}
    assert results == {"demo.echo": "ok" if "demo.echo" in kept else "ambiguous", "demo.pay": "ambiguous"}
    assert pay.effects.total() == 1
    await check_conversation(bench)


async def test_a_call_does_not_begin_after_a_steer() -> None:
    pay = DemoTool("demo.pay", effect=Effect.IRREVERSIBLE)
    bench = Bench(call("demo.pay", {}), answer("Done."), tools=[pay])
    await bench.say("Hello.")
    worker = bench.hire()

    async def steer_while_the_call_is_decided(commit: Commit) -> None:
        if any(isinstance(block.body, ToolCallBody) for block in commit.blocks):
            await bench.signal(SignalKind.STEER, "")

    worker.timelines.before_commit = steer_while_the_call_is_decided
    await worker.work()

    assert pay.calls.total() == 0
    await check_conversation(bench)


async def test_times_never_go_back_if_the_clock_of_the_next_worker_is_behind() -> None:
    bench, _ = build()
    await bench.say("Hello.")
    await bench.hire(failpoint="turn.after_c1:1:raise").work()
    bench.expire_lease()
    worker = bench.hire()
    worker.change(clock=FixedClock(bench.clock.now() - timedelta(seconds=18)))

    await worker.work()

    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


async def test_an_outage_while_a_call_is_reviewed_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    review, outages = CallPolicy.review, [Unavailable("the database restarts")]

    async def fail_once(policy: CallPolicy, *args: Any) -> Any:
        if outages:
            raise outages.pop()
        return await review(policy, *args)

    monkeypatch.setattr(CallPolicy, "review", fail_once)
    bench, echo = build()
    await bench.say("Hello.")

    await bench.work()

    assert echo.calls.total() == 1 and len(bench.model.requests) == 2
    await check_conversation(bench)


async def test_an_irreversible_call_that_a_drain_cut_short_is_ambiguous_too() -> None:
    bench, echo = build(effect=Effect.IRREVERSIBLE)
    echo.go_on.clear()
    await bench.say("Hello.")
    worker = bench.hire()
    task = asyncio.create_task(worker.run_one())
    await echo.started.wait()
    assert worker.current is not None

    worker.current.interrupt()
    await task
    await bench.work()

    assert echo.calls.total() == 1
    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert result.status == "ambiguous"
    await check_conversation(bench)


async def test_the_model_call_that_died_with_its_worker_is_recorded() -> None:
    bench, _ = build()
    await bench.say("Hello.")
    await bench.hire(failpoint="turn.mid_stream:2:raise").work()
    bench.expire_lease()

    await bench.work()

    assert [event.estimated for _, event in bench.platform.usage] == [True, False]
    await check_conversation(bench)


async def test_a_turn_that_kills_its_workers_in_the_model_call_is_given_up() -> None:
    bench = Bench(*[cut_answer("x" * 40)] * 9)
    await bench.say("Hello.")
    for _ in range(3):
        await bench.hire(failpoint="turn.mid_stream:2:raise").work()
        bench.expire_lease()

    await bench.work()

    assert len(bench.model.requests) == 3
    assert bench.exits[0].error is not None
    assert bench.exits[0].error.type.endswith("turn-given-up")
    await check_conversation(bench)


async def test_a_turn_that_kills_its_workers_in_a_tool_is_given_up() -> None:
    bench, _ = build()
    await bench.say("Hello.")
    for _ in range(4):
        await bench.hire(failpoint="turn.in_tool:1:raise").work()
        bench.expire_lease()

    await bench.work()

    assert bench.turn_rows[0].status is TurnStatus.FAILED
    await check_conversation(bench)


@pytest.mark.parametrize("workflow", ["loop", "dag"])
@pytest.mark.parametrize("effect", [Effect.PURE, Effect.IRREVERSIBLE])
async def test_no_step_is_in_progress_after_a_turn_was_given_up(workflow: Any, effect: Effect) -> None:
    echo = DemoTool(effect=Effect.PURE)
    if workflow == "dag":
        bench = build_dag_bench(
            planned=plan({"a": ""}), of_step=lambda _step, _text: call("demo.echo", {}), tools=(echo,)
        )
    else:
        bench = Bench(*[call("demo.echo", {})] * 3, tools=[echo])
    await bench.say("Hello.")
    for _ in range(MAX_ATTEMPTS):
        await bench.hire(failpoint="turn.in_tool:1:raise").work()
        bench.expire_lease()
    bench.registry = ToolRegistry([DemoTool(effect=effect)])

    await bench.work()

    (turn,) = bench.state().turns
    assert turn.steps and not [step for step in turn.steps if step.status == "started"]
    statuses = {block.body.status for block in bench.blocks if isinstance(block.body, ToolResultBody)}
    assert statuses == {"ambiguous" if effect is Effect.IRREVERSIBLE else "error"}
    await check_conversation(bench)


async def test_a_turn_that_kills_its_workers_before_it_begins_is_given_up() -> None:
    bench = Bench()
    await bench.say("Hello.")
    for _ in range(3):
        await bench.hire(dies_at=1).work()
        bench.expire_lease()

    await bench.work()

    assert bench.texts(PromptBody) == ["Hello."]
    assert bench.turn_rows[0].status is TurnStatus.FAILED
    await check_conversation(bench)


async def test_a_draining_worker_hands_over_at_a_round_boundary() -> None:
    bench, echo = build()
    echo.go_on.clear()
    await bench.say("Hello.")
    worker = bench.hire()
    task = asyncio.create_task(worker.run_one())
    await echo.started.wait()
    assert worker.current is not None

    worker.current.request_handover()
    echo.go_on.set()
    await task

    assert bench.turn_rows[0].status is TurnStatus.QUEUED
    assert await bench.doorbells.next_ring([Lane.REGISTERED], timeout_s=0.01) == bench.conversation_id
    await bench.work()
    assert list(echo.calls.values()) == [1]
    assert bench.exits[0].outcome is Outcome.COMPLETED
    await check_conversation(bench)


@pytest.mark.parametrize(
    ("retracts", "left", "ended"),
    [(False, TurnStatus.CANCELLED, TurnStatus.CANCELLED), (True, TurnStatus.QUEUED, TurnStatus.COMPLETED)],
)
async def test_a_turn_claimed_for_its_cancel_runs_no_round(retracts: bool, left: TurnStatus, ended: TurnStatus) -> None:
    bench, _ = build()
    await bench.say("Hello.")
    signal_id = await bench.signal(SignalKind.CANCEL)
    if retracts:
        await bench.retract(signal_id)
    await run_claimed_for_cancel(bench)

    assert (bench.turn_rows[0].status, bench.model.requests) == (left, [])
    await bench.work()
    assert bench.turn_rows[0].status is ended
    await check_conversation(bench)


@pytest.mark.parametrize("steers", [False, True])
async def test_a_turn_claimed_for_its_cancel_makes_no_calls_that_another_worker_left(steers: bool) -> None:
    bench, echo = build()
    echo.go_on.clear()
    await bench.say("Hello.")
    first = bench.hire()
    task = asyncio.create_task(first.run_one())
    await echo.started.wait()
    assert first.current is not None
    first.current.interrupt()
    await task
    calls = dict(echo.calls)

    echo.go_on.set()
    if steers:
        await bench.signal(SignalKind.STEER, "Be brief.")
    await bench.retract(await bench.signal(SignalKind.CANCEL))
    await run_claimed_for_cancel(bench)

    assert (bench.turn_rows[0].status, dict(echo.calls)) == (TurnStatus.QUEUED, calls)
    await bench.work()
    assert bench.texts(CompletionBody) == ["Done."]
    await check_conversation(bench)


async def test_a_turn_interrupted_in_a_generation_is_handed_over() -> None:
    bench = Bench([Say(cut_answer("Half")), Pause(asyncio.Event())], answer("Whole."))
    await bench.say("Hello.")
    worker = bench.hire()
    task = asyncio.create_task(worker.run_one())
    await until(lambda: bench.model.unfinished == 1)
    assert worker.current is not None

    worker.current.interrupt()
    await task
    await bench.work()

    assert bench.texts(CompletionBody) == ["Whole."]
    assert bench.turn_rows[0].attempt == 0
    await check_conversation(bench)


@pytest.mark.parametrize("step", range(1, 60, 3))
async def test_a_frozen_worker_writes_nothing_more_when_it_comes_back(step: int) -> None:
    bench = Bench(*SCENARIO, *SCENARIO, tools=[DemoTool()])
    await bench.say("Hello.")
    zombie = bench.hire()
    task = asyncio.create_task(zombie.run_one())
    await until(lambda: zombie.gate.steps >= step or task.done())
    zombie.gate.freeze()
    bench.expire_lease()
    await bench.work()
    blocks, entries = list(bench.blocks), await bench.published()

    zombie.gate.thaw()
    await task

    assert bench.blocks == blocks
    assert await bench.published() == entries
    await check_conversation(bench, ends_may_repeat=True)


async def test_a_lost_lease_stops_the_work_at_once() -> None:
    bench = Bench([Say(cut_answer("Half")), Pause(asyncio.Event())], answer("Whole."))
    await bench.say("Hello.")
    worker = bench.hire()
    task = asyncio.create_task(worker.run_one())
    await until(lambda: bench.model.unfinished == 1)
    assert worker.current is not None

    worker.current.lose_lease()

    assert not await task
    assert bench.turn_rows[0].status is TurnStatus.RUNNING


async def test_losing_all_events_in_the_middle_is_made_up_for() -> None:
    bench, echo = build()
    echo.go_on.clear()
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await echo.started.wait()

    bench.events.lose_all()
    echo.go_on.set()
    await task

    published = await bench.published()
    assert isinstance(published[0].data, ChatRewind)
    await check_conversation(bench)


async def test_a_turn_runs_without_redis_and_is_announced_later() -> None:
    bench, _ = build()
    await bench.say("Hello.")
    bench.events.down = True
    worker = bench.hire()
    task = asyncio.create_task(worker.run_one())
    await until(lambda: bool(bench.exits))

    bench.events.down = False
    await task

    assert bench.platform.turns[bench.turn_rows[0].id].announced
    await check_conversation(bench, ends_may_repeat=True)


async def test_a_commit_that_the_database_could_not_take_is_tried_again() -> None:
    bench, echo = build()
    await bench.say("Hello.")
    worker = bench.hire()
    worker.timelines.failures = [Unavailable("restarting"), Unavailable("restarting")]

    await worker.work()

    assert echo.calls.total() == 1
    await check_conversation(bench)


async def test_the_next_worker_folds_signals_that_arrived_meanwhile() -> None:
    bench, _ = build()
    await bench.say("Hello.")
    await bench.hire(failpoint="turn.after_c2:1:raise").work()
    await bench.signal(SignalKind.FOLLOWUP, "And this.")
    bench.expire_lease()

    await bench.work()

    assert "And this." in str(bench.model.requests[1])
    await check_conversation(bench)
