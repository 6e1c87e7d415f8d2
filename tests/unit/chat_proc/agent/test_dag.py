"""Turns with the workflow dag: plans, lanes side by side, judgements, and workers that die anywhere."""

import asyncio
import gc
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import ANN, Bench, OneKit, hear_all, until
from turn_harness.plans import (
    NEEDS,
    RoutedModel,
    check_turn,
    hang,
    interrupt_steps,
    judge,
    plan,
    read,
    result_text,
    results,
    step_requests,
    work_on,
)
from turn_harness.plans import build_dag_bench as build
from turn_harness.replies import answer, call, cut_answer
from turn_harness.signals import CANCEL, FOLLOWUP, STEER
from turn_harness.tools import DemoTool

from chat_proc.agent.dag import loop
from chat_proc.agent.dag.loop import build_step_account
from chat_proc.agent.dag.step import StepRunner, StepStop
from chat_proc.agent.generation import WaitingNotice
from chat_proc.agent.kit import TurnLimits
from chat_proc.catalog.tool import CallDetached, CallPostponed, ToolCall, ToolOutcome
from chat_proc.models.retry import ModelRetryLimits, RetryingModel, RetryTiming
from chat_proc.worker.runner import MAX_ATTEMPTS
from everturn.core.errors import StaleFence
from everturn.events.model import ChatApproval, ChatDelta, ChatPhase, ChatPlan, ChatRewind, ChatStep
from everturn.models.port import ModelFailed, ModelPiece, ModelRequest
from everturn.timeline.blocks import (
    CompletionBody,
    DeferralBody,
    RoundStartBody,
    StepResultBody,
    TitleBody,
    ToolCallBody,
    ToolResultBody,
    WorkflowBody,
)
from everturn.timeline.forms import hash_text
from everturn.timeline.manifests import Manifest, Preamble
from everturn.timeline.plans import StepStatus
from everturn.timeline.turns import Outcome, SignalKind, TurnStatus
from everturn.timeline.workflow import PlannedStep, fold_workflow
from everturn.turns.inbox import IncomingSignal
from everturn.turns.model import Commit, Effect
from everturn_testing.models.scripted_model import Fail, Finish, Pause, Say, Script, ScriptedModel


def decisions(bench: Bench) -> list[str]:
    return [block.body.decision for block in bench.blocks if isinstance(block.body, WorkflowBody)]


async def count_gate_steps() -> int:
    bench = build()
    await bench.say("Do all of it.")
    worker = bench.hire()
    await worker.work()
    return worker.gate.steps


async def test_a_plan_of_six_steps_runs_to_one_answer() -> None:
    bench = build()
    await bench.say("Do all of it.")

    await bench.work()

    assert results(bench) == dict.fromkeys("abcdef", "ok")
    assert decisions(bench) == ["plan", "continue", "continue", "continue"]
    assert [exit.outcome for exit in bench.exits] == [Outcome.COMPLETED]
    await check_turn(bench)


@pytest.mark.parametrize("first", [1, *(pytest.param(first, marks=pytest.mark.slow) for first in (2, 3))])
async def test_a_worker_may_die_at_any_step(first: int) -> None:
    """At every third one from the first on: all of them take half a minute."""
    for gate_step in range(first, await count_gate_steps() + 1, 3):
        bench = build()
        await bench.say("Do all of it.")
        await bench.hire(dies_at=gate_step).work()
        bench.expire_lease()

        await bench.work()

        assert results(bench) == dict.fromkeys("abcdef", "ok"), gate_step
        assert bench.exits[0].outcome is Outcome.COMPLETED, gate_step
        await check_turn(bench, ends_may_repeat=True)


FAILPOINTS = [
    *("turn.opened", "turn.before_plan", "turn.after_plan", "turn.before_first_token", "turn.mid_stream"),
    *("turn.before_c1", "turn.after_c1", "turn.in_tool", "turn.before_c2", "turn.after_c2"),
    *("turn.before_step_result", "turn.after_step_result", "turn.before_c3", "turn.after_c3", "turn.published"),
]


@pytest.mark.parametrize("failpoint", FAILPOINTS)
@pytest.mark.parametrize("nth", [1, 2, 5])
async def test_a_worker_may_die_at_any_failpoint(failpoint: str, nth: int) -> None:
    bench = build()
    await bench.say("Do all of it.")
    await bench.hire(failpoint=f"{failpoint}:{nth}:raise").work()
    bench.expire_lease()

    await bench.work()

    assert results(bench) == dict.fromkeys("abcdef", "ok")
    await check_turn(bench, ends_may_repeat=True)


async def test_workers_may_die_one_after_another() -> None:
    bench = build()
    await bench.say("Do all of it.")
    for dies_at in range(20, 60, 7):
        await bench.hire(dies_at=dies_at).work()
        bench.expire_lease()

    await bench.work()

    assert results(bench) == dict.fromkeys("abcdef", "ok")
    await check_turn(bench, ends_may_repeat=True)


async def test_a_frozen_worker_writes_nothing_more_in_any_lane() -> None:
    for gate_step in range(5, 120, 10):
        bench = build()
        await bench.say("Do all of it.")
        zombie = bench.hire()
        task = asyncio.create_task(zombie.run_one())
        await until(lambda worker=zombie, at=gate_step, task=task: worker.gate.steps >= at or task.done())
        zombie.gate.freeze()
        bench.expire_lease()
        await bench.work()
        blocks = list(bench.blocks)

        zombie.gate.thaw()
        await task

        assert bench.blocks == blocks
        await check_turn(bench, ends_may_repeat=True)


class DetachingTool(DemoTool):
    """Its calls go on without their turn until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__("demo.detach", strategy="exploitation")
        self.spec = replace(self.spec, may_detach=True)
        self.go_on.clear()

    async def run(self, call: ToolCall) -> ToolOutcome:
        if not self.go_on.is_set():
            self.calls[call.call_id] += 1
            raise CallDetached
        return await super().run(call)


async def test_a_step_goes_on_when_its_detached_run_has_ended_beside_a_long_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "RUN_CHECK_EVERY_S", 0.01)
    detached, long = DetachingTool(), DemoTool(strategy="exploration")
    long.go_on.clear()

    def of_step(step: str, text: str) -> Script:
        if step == "p" and "echo: p" not in text:
            return call("demo.detach", {"text": step})
        return work_on(step, text)

    bench = build(planned=plan({"p": "", "q": ""}), of_step=of_step, tools=(detached, long))
    await bench.say("Do both.")

    working = asyncio.create_task(bench.work())
    await until(lambda: detached.calls.total() > 1 and long.started.is_set())
    assert results(bench) == {}
    detached.go_on.set()
    await until(lambda: results(bench) == {"p": "ok"})
    long.go_on.set()
    await asyncio.wait_for(working, 10)

    assert (results(bench), detached.effects.total()) == ({"p": "ok", "q": "ok"}, 1)
    await check_turn(bench)


class PostponedTool(DetachingTool):
    """An outage hides what its calls do until `go_on` is set."""

    async def run(self, call: ToolCall) -> ToolOutcome:
        try:
            return await super().run(call)
        except CallDetached as detached:
            raise CallPostponed from detached


async def test_a_step_whose_call_is_postponed_does_not_wait_for_the_answer_to_another_one() -> None:
    postponed, asks = PostponedTool(), DemoTool("demo.send", strategy="exploitation", requires_approval=True)

    def of_step(step: str, text: str) -> Script:
        tool = "demo.detach" if step == "p" else "demo.send"
        return work_on(step, text) if f"echo: {step}" in text else call(tool, {"text": step})

    bench = build(planned=plan({"p": "", "q": ""}), of_step=of_step, tools=(postponed, asks))
    await bench.say("Do both.")

    worker = bench.hire()
    await hear_all(bench)
    await worker.run_one()
    assert (bench.turn_rows[0].status, await hear_all(bench)) == (TurnStatus.QUEUED, 0)
    postponed.go_on.set()
    await worker.work()

    assert bench.turn_rows[0].status is TurnStatus.WAITING
    assert (results(bench), postponed.effects.total()) == ({"p": "ok"}, 1)


async def test_a_steer_ends_the_detached_run_of_a_step_beside_a_long_one() -> None:
    detached, long = DetachingTool(), DemoTool(strategy="exploration")
    long.go_on.clear()

    def of_step(step: str, text: str) -> Script:
        return call("demo.detach", {"text": step}) if step == "p" else work_on(step, text)

    bench = build(planned=plan({"p": "", "q": ""}), of_step=of_step, tools=(detached, long))
    await bench.say("Do both.")
    working = asyncio.create_task(bench.work())
    await until(lambda: detached.calls.total() > 0 and long.started.is_set())

    await bench.signal(STEER, "Only say what you know.")
    await asyncio.wait_for(working, 10)

    texts = [block.body.text for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert any(text.startswith("The call was ended, or not started") for text in texts)
    assert results(bench) == {"p": "cancelled", "q": "cancelled"}
    await check_turn(bench)


async def test_a_step_sees_its_task_and_its_dependencies_and_nothing_else() -> None:
    bench = build()
    await bench.say("What did I ask before?")
    bench.model.requests.clear()
    await bench.work()
    await bench.say("Do all of it.")
    bench.model.requests.clear()

    await bench.work()

    first, second = step_requests(bench, "d")
    assert "Result of b." in first and "Result of c." in first
    assert not re.search(r"Result of [aef]\.|echo: [abcef]|Do [abcef]\.|What did I ask", first)
    assert "echo: d" in second and second.startswith(first[: first.index("[ANNOUNCE]")])
    (planning,) = [text for text in map(read, bench.model.requests) if text.startswith("You plan")]
    assert "What did I ask before?" in planning and "All is done." in planning


class MeetingModel(RoutedModel):
    """Replies to a step only once as many steps as expected have asked."""

    meeting: asyncio.Barrier

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        if (found := re.search(r"Do ([bcf])\.\n\nDo only", read(request))) and f"echo: {found[1]}" not in read(request):
            await self.meeting.wait()
        async for piece in super().generate(request):
            yield piece


async def test_independent_steps_run_at_the_same_time() -> None:
    bench = build()
    bench.model.__class__ = MeetingModel
    assert isinstance(bench.model, MeetingModel)
    bench.model.meeting = asyncio.Barrier(3)
    await bench.say("Do all of it.")

    await asyncio.wait_for(bench.work(), 10)

    await check_turn(bench)


async def test_at_most_three_steps_run_at_the_same_time() -> None:
    tool = DemoTool(strategy="exploration")
    tool.go_on.clear()
    needs = dict.fromkeys(["p", "q", "r", "s", "t"], "")
    bench = build(planned=plan(needs), tools=(tool,))
    await bench.say("Do all of it.")

    working = asyncio.create_task(bench.work())
    await until(lambda: tool.calls.total() == 3)
    for _ in range(300):
        await asyncio.sleep(0)
    running = tool.calls.total()
    tool.go_on.set()
    await working

    assert running == 3
    assert results(bench) == dict.fromkeys(needs, "ok")
    await check_turn(bench)


async def test_steps_that_write_take_turns() -> None:
    tool = DemoTool(strategy="exploitation")
    tool.go_on.clear()
    bench = build(planned=plan({"p": "", "q": ""}), tools=(tool,))
    await bench.say("Do both.")

    working = asyncio.create_task(bench.work())
    await until(lambda: sum(isinstance(block.body, ToolCallBody) for block in bench.blocks) == 2)
    for _ in range(300):
        await asyncio.sleep(0)
    running = tool.calls.total()
    tool.go_on.set()
    await working

    assert running == 1
    await check_turn(bench)


async def test_a_call_that_waits_to_write_is_not_made_after_a_steer() -> None:
    tool = DemoTool(strategy="exploitation")
    tool.go_on.clear()
    bench = build(planned=plan({"p": "", "q": ""}), tools=(tool,))
    await bench.say("Do both.")
    working = asyncio.create_task(bench.work())
    await until(lambda: sum(isinstance(block.body, ToolCallBody) for block in bench.blocks) == 2)
    await until(lambda: tool.calls.total() == 1)

    await bench.signal(STEER, "Only say what you know.")
    tool.go_on.set()
    await asyncio.wait_for(working, 10)

    assert tool.calls.total() == 1
    assert results(bench) == {"p": "cancelled", "q": "cancelled"}
    await check_turn(bench)


async def test_clients_follow_the_plan_and_the_calls_of_its_steps() -> None:
    bench = build(planned=plan({"a": "", "b": "a"}), chunk_chars=5)
    await bench.say("Do both.")

    await bench.work()

    events = [event.data for event in await bench.published()]
    shown = [[step.status for step in event.plan.steps] for event in events if isinstance(event, ChatPlan)]
    pending, running, done = StepStatus.PENDING, StepStatus.IN_PROGRESS, StepStatus.DONE
    assert shown[:5] == [[pending, pending], [running, pending], [done, pending], [done, pending], [done, running]]
    assert shown[-1] == [done, done]
    steps = [(event.step_id, event.status) for event in events if isinstance(event, ChatStep)]
    assert steps == [("a", "started"), ("a", "completed"), ("b", "started"), ("b", "completed")]
    deltas = [event for event in events if isinstance(event, ChatDelta)]
    assert "".join(delta.text for delta in deltas if delta.channel == "answer") == "All is done."
    assert [delta.text for delta in deltas if delta.channel == "thinking"] == ["Hm.", "Hm."]
    await check_turn(bench)


async def test_an_invalid_plan_is_corrected_by_the_model() -> None:
    plans = iter([plan({"a": "b", "b": "a"}), plan({"a": "", "b": "a"})])
    bench = build(planned=lambda _step, _text: next(plans))
    await bench.say("Do both.")

    await bench.work()

    correction = read(bench.model.requests[1])
    assert "the steps a, b depend on each other in a circle" in correction
    assert results(bench) == {"a": "ok", "b": "ok"}
    await check_turn(bench)


@pytest.mark.parametrize("reply", ["I would rather not.", plan({}), plan(dict.fromkeys(map(str, range(21)), ""))])
async def test_without_a_plan_the_turn_is_an_ordinary_loop(reply: str) -> None:
    bench = build(planned=reply)
    await bench.say("Hello.")

    await bench.work()

    assert decisions(bench) == ["unplanned"]
    assert bench.texts(CompletionBody) == ["Answered in a loop."]
    await check_conversation(bench)


async def test_a_turn_that_fell_back_to_the_loop_stays_one_on_another_worker() -> None:
    bench = build(planned="No.")
    await bench.say("Hello.")
    await bench.hire(failpoint="turn.after_plan:1:raise").work()
    bench.expire_lease()

    await bench.work()

    assert decisions(bench) == ["unplanned"]
    assert bench.texts(CompletionBody) == ["Answered in a loop."]
    await check_conversation(bench)


async def test_a_planned_turn_keeps_its_steps_when_the_setting_changes() -> None:
    bench = build()
    await bench.say("Do all of it.")
    await bench.hire(failpoint="turn.before_c2:1:raise").work()
    bench.expire_lease()
    bench.workflow = "loop"

    await bench.work()

    assert results(bench) == dict.fromkeys("abcdef", "ok")
    await check_turn(bench)


async def test_a_planned_turn_keeps_its_rounds_when_the_setting_changes() -> None:
    bench = build(limits=TurnLimits(rounds=40))
    await bench.say("Do all of it.")
    await bench.hire(failpoint="turn.before_c2:1:raise").work()
    bench.expire_lease()
    bench.workflow, bench.limits = "loop", TurnLimits(rounds=3)

    await bench.work()

    starts = [block.body for block in bench.blocks if isinstance(block.body, RoundStartBody)]
    assert {start.limit for start in starts if not start.lane} == {40}
    assert [exit.outcome for exit in bench.exits] == [Outcome.COMPLETED]
    await check_turn(bench)


async def test_a_step_with_another_model_keeps_the_rounds_of_its_turn() -> None:
    planned = plan({"a": "", "b": "a", "c": "b"}, c={"model_hint": "fast"})
    bench = build(planned=planned, limits=TurnLimits(rounds=40))
    bench.hinted = {"fast": bench.model}
    await bench.say("Do all of it.")
    await bench.hire(failpoint="turn.before_c2:1:raise").work()
    bench.expire_lease()
    bench.workflow, bench.limits = "loop", TurnLimits(rounds=3)

    await asyncio.wait_for(bench.work(), 10)

    assert results(bench) == dict.fromkeys("abc", "ok")
    await check_turn(bench)


async def test_a_planning_call_that_died_with_its_worker_is_recorded() -> None:
    replies = iter([[Pause(asyncio.Event())], plan({"a": ""})])
    bench = build(planned=lambda _step, _text: next(replies))
    await bench.say("Do it.")
    first, task = await interrupt_steps(bench, when=1)
    first.gate.dead.set()
    await task
    bench.expire_lease()

    await bench.work()

    assert [event.estimated for _, event in bench.platform.usage if event.role == "planning"] == [True, False, False]
    await check_turn(bench)


async def test_a_judgement_can_replace_the_remaining_steps() -> None:
    judgements = iter([judge("replan", {"x": "a", "y": "x"}), judge(), judge("done")])
    bench = build(judged=lambda _step, _text: next(judgements))
    await bench.say("Do all of it.")

    await bench.work()

    assert results(bench) == dict.fromkeys("aexy", "ok")
    assert decisions(bench) == ["plan", "replan", "continue", "done"]
    await check_conversation(bench)


async def test_a_plan_is_changed_a_limited_number_of_times() -> None:
    numbers = iter(range(100))

    def judged(_step: str, text: str) -> str:
        # The last attempt is refused, then the model gives in.
        return judge() if "choose continue or done" in text else judge("replan", {f"n{next(numbers)}": ""})

    bench = build(judged=judged)
    await bench.say("Do all of it.")

    await bench.work()

    assert decisions(bench) == ["plan", "replan", "replan", "replan", "continue"]
    await check_conversation(bench)


async def test_done_leaves_the_other_steps_undone() -> None:
    bench = build(judged=judge("done"))
    await bench.say("Do all of it.")

    await bench.work()

    assert sorted(results(bench)) == ["a", "e"]
    await check_turn(bench)


async def test_only_calls_that_can_fall_back_give_the_first_model_up_early() -> None:
    now_s = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    down: Script = [Fail(ModelFailed("busy", retryable=True, kind="overloaded"))]
    asked: list[str] = []

    def reply(name: str, *scripts: Script) -> Callable[[str, str], Script]:
        left = iter(scripts)
        return lambda _step, _text: asked.append(name) or next(left, down)

    bench = build(
        planned=reply("plan", *[down] * 7, plan({"a": ""})),
        of_step=reply("step"),
        judged=reply("judgement", *[down] * 7, judge()),
        answered=reply("synthesis"),
        fallback=ScriptedModel([answer("Result of a."), "All is done."]),
    )
    worker = bench.hire()
    timing = RetryTiming(clock=lambda: now_s, sleep=sleep, chance=lambda: 1.0)
    model = RetryingModel(bench.model, limits=ModelRetryLimits(), timing=timing)
    worker.change(kits=OneKit(replace(worker.kit, model=model)))
    await bench.say("Do all of it.")

    await worker.work()

    assert results(bench) == {"a": "ok"}
    assert Counter(asked) == {"plan": 8, "step": 6, "judgement": 8, "synthesis": 6}
    await check_turn(bench)


async def check_account(bench: Bench, outcome: Outcome) -> None:
    """The turn ended like this, with the account of the results as its answer."""
    (text,) = bench.texts(CompletionBody)
    assert "**Do d.** (done): Result of d." in text
    assert [exit.outcome for exit in bench.exits] == [outcome]
    await check_conversation(bench)


async def test_without_a_synthesis_the_answer_is_an_account_of_the_results() -> None:
    bench = build(answered="")
    await bench.say("Do all of it.")

    await bench.work()

    await check_account(bench, Outcome.CAPPED)


@pytest.mark.parametrize(("kind", "status"), [(CANCEL, TurnStatus.CANCELLED), (STEER, TurnStatus.COMPLETED)])
async def test_a_signal_that_ends_the_turn_ends_all_steps(kind: SignalKind, status: TurnStatus) -> None:
    bench = build(of_step=hang)
    await bench.say("Do all of it.")
    _, task = await interrupt_steps(bench)

    await bench.signal(kind)
    await asyncio.wait_for(task, 10)

    assert bench.turn_rows[0].status is status
    assert results(bench) == {"a": "cancelled", "e": "cancelled"}
    shown = {step.step_id: step.status for step in bench.state().turns[0].plans[0].steps}
    assert {shown[step_id] for step_id in "ae"} == {StepStatus.FAILED}
    assert {shown[step_id] for step_id in "bcdf"} == {StepStatus.PENDING}
    await check_conversation(bench)


async def test_a_cancel_while_steps_write_their_results_counts_their_calls() -> None:
    bench = build(of_step=lambda _step, _text: [Say(cut_answer("Half of it")), Pause(asyncio.Event())], chunk_chars=4)
    await bench.say("Do all of it.")
    _, task = await interrupt_steps(bench)

    await bench.signal(CANCEL)
    await asyncio.wait_for(task, 10)

    assert results(bench) == {"a": "cancelled", "e": "cancelled"}
    assert len(bench.platform.usage) == len(bench.model.requests)
    await check_conversation(bench)


async def test_a_cancel_during_the_calls_of_steps_settles_them() -> None:
    tool = DemoTool(strategy="exploration")
    tool.go_on.clear()
    bench = build(tools=(tool,))
    await bench.say("Do all of it.")
    task = asyncio.create_task(bench.work())
    await until(lambda: tool.calls.total() == 2)

    await bench.signal(CANCEL)
    await asyncio.wait_for(task, 10)

    statuses = [block.body.status for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert statuses == ["cancelled", "cancelled"]
    assert bench.turn_rows[0].status is TurnStatus.CANCELLED
    await check_conversation(bench)


async def test_a_steer_ends_running_steps_and_is_answered() -> None:
    bench = build(of_step=hang)
    await bench.say("Do all of it.")
    _, task = await interrupt_steps(bench)

    await bench.signal(STEER, "Only say what you know.")
    await asyncio.wait_for(task, 10)

    assert results(bench) == {"a": "cancelled", "e": "cancelled"}
    (synthesis,) = [
        text for text in map(read, bench.model.requests) if text.startswith("You write an assistant's answer")
    ]
    assert "Only say what you know." in synthesis
    await check_turn(bench)


async def test_a_followup_is_judged_at_the_end_of_its_wave() -> None:
    tool = DemoTool(strategy="exploration")
    tool.go_on.clear()
    judgements = iter([judge("replan", {"x": ""}), judge("done")])
    bench = build(judged=lambda _step, _text: next(judgements), tools=(tool,))
    await bench.say("Do all of it.")
    task = asyncio.create_task(bench.work())
    await until(lambda: tool.calls.total() == 2)

    await bench.say("And x.", FOLLOWUP)
    tool.go_on.set()
    await asyncio.wait_for(task, 10)

    judging = next(text for text in map(read, bench.model.requests) if text.startswith("You supervise"))
    assert "And x." in judging
    assert results(bench) == dict.fromkeys("aex", "ok")
    await check_turn(bench)


DOWN = Fail(ModelFailed("Down."))


@pytest.mark.parametrize("script", ["", [DOWN], [Say("All"), DOWN]])
async def test_if_the_synthesis_fails_the_answer_is_an_account_of_the_results(script: Script) -> None:
    bench = build(answered=lambda _step, _text: script)
    await bench.say("Do all of it.")

    await bench.work()

    await check_account(bench, Outcome.CAPPED)


async def test_the_errors_of_all_lanes_of_a_lost_turn_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose_the_lease(_runner: StepRunner, step: PlannedStep, **_more: Any) -> StepStop:
        try:
            await asyncio.sleep(0.01 if step.id == "a" else 60)
        finally:
            raise StaleFence("another worker has the turn")

    monkeypatch.setattr(StepRunner, "run", lose_the_lease)
    unread: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unread.append(context))
    bench = build(planned=plan({"a": "", "b": "", "c": ""}))
    await bench.say("Do all of it.")

    await bench.hire().run_one()
    gc.collect()

    assert not unread


async def test_if_the_synthesis_fails_after_a_steer_the_person_has_stopped_the_turn() -> None:
    bench = build(planned=plan({"a": ""}), of_step=hang, judged=judge("done"), answered=" ")
    await bench.say("Do all of it.")
    _, task = await interrupt_steps(bench, when=1)

    await bench.signal(STEER, "Finish now.")
    await task

    (text,) = bench.texts(CompletionBody)
    assert text.startswith("I could not write a complete answer.")
    assert [exit.outcome for exit in bench.exits] == [Outcome.STOPPED]
    await check_conversation(bench)


async def test_a_plan_takes_no_longer_than_its_turn_may() -> None:
    silent: Script = [Pause(asyncio.Event())]
    bench = build(planned=lambda _step, _text: silent, limits=TurnLimits(rounds=100, wall_time_s=0.3))
    await bench.say("Do all of it.")

    await asyncio.wait_for(bench.work(), 10)

    assert read(bench.model.requests[0]).startswith("You plan")
    await check_conversation(bench)


async def test_a_plan_that_a_cancel_ends_is_not_shown() -> None:
    bench = build(planned=lambda _step, _text: [Say("{"), Pause(asyncio.Event())])
    await bench.say("Do all of it.")
    task = asyncio.create_task(bench.work())
    await until(lambda: bench.model.unfinished == 1)

    await bench.signal(CANCEL)
    await task

    kinds = [event.data for event in await bench.published() if isinstance(event.data, ChatPhase | ChatRewind)]
    assert isinstance(kinds[-1], ChatRewind) and any(isinstance(each, ChatPhase) for each in kinds)
    await check_conversation(bench)


async def test_a_plan_that_arrives_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = {"first_after_s": 0.5, "every_s": 0.5}
    monkeypatch.setattr(WaitingNotice.__init__, "__kwdefaults__", waits)
    text = plan({"a": ""})
    slow = [step for at in range(0, len(text), 8) for step in (Pause(0.1), Say(text[at : at + 8]))]
    bench = build(planned=lambda _step, _text: slow)
    await bench.say("Do a.")

    await bench.work()

    phases = [event.data for event in await bench.published() if isinstance(event.data, ChatPhase)]
    assert not any(phase.phase == "model_waiting" and phase.step_id is None for phase in phases)


@pytest.mark.parametrize("reason", ["refusal", "content_filter"])
async def test_an_answer_that_was_declined_halfway_is_replaced_by_an_account(reason: Any) -> None:
    bench = build(planned=plan({"a": ""}), answered=lambda _step, _text: [Say("All"), Finish(reason)])
    await bench.say("Do a.")

    await bench.work()

    (text,) = bench.texts(CompletionBody)
    assert "**Do a.** (done): Result of a." in text
    assert (bench.exits[-1].outcome, bench.exits[-1].cut_reason) == (Outcome.CAPPED, None)
    await check_conversation(bench)


async def test_an_answer_that_ends_at_its_length_is_better_than_an_account() -> None:
    bench = build(planned=plan({"a": ""}), answered=lambda _step, _text: [Say("All is"), Finish("length")])
    await bench.say("Do a.")

    await bench.work()

    assert bench.texts(CompletionBody) == ["All is"]
    assert (bench.exits[-1].outcome, bench.exits[-1].cut_reason) == (Outcome.CUT, "length")
    await check_conversation(bench)


async def test_a_synthesis_may_write_what_the_account_says() -> None:
    bench = build(answered=lambda _step, _text: build_step_account(fold_workflow(bench.blocks)))
    await bench.say("Do all of it.")

    await bench.work()

    assert [exit.outcome for exit in bench.exits] == [Outcome.COMPLETED]
    await check_conversation(bench)


@pytest.mark.parametrize("script", [[DOWN], [Say("<channel:thinking>Let me"), DOWN]])
async def test_a_provider_that_fails_in_one_lane_fails_its_step_alone(script: Script) -> None:
    bench = build(of_step=lambda step, text: script if step == "b" else work_on(step, text))
    await bench.say("Do all of it.")

    await bench.work()

    assert results(bench) == dict.fromkeys("abcdef", "ok") | {"b": "failed"}
    assert [exit.outcome for exit in bench.exits] == [Outcome.COMPLETED]
    await check_turn(bench)


async def test_what_a_step_did_before_its_provider_failed_is_no_result() -> None:
    def of_step(step: str, text: str) -> Script:
        return [DOWN] if f"echo: {step}" in text and step == "b" else work_on(step, text)

    bench = build(of_step=of_step)
    await bench.say("Do all of it.")

    await bench.work()

    assert results(bench) == dict.fromkeys("abcdef", "ok") | {"b": "failed"}
    assert "demo.echo: done" in result_text(bench, "b")
    await check_turn(bench)


async def begin_answer(bench: Bench) -> asyncio.Task[None]:
    """A worker that has begun the synthesis of the answer."""
    await bench.say("Do all of it.")
    task = asyncio.create_task(bench.work())
    await until(lambda: bool(bench.model.requests) and read(bench.model.requests[-1]).startswith("You write"))
    for _ in range(100):
        await asyncio.sleep(0)
    return task


async def test_a_followup_during_the_answer_is_judged_before_another_answer() -> None:
    said = asyncio.Event()
    answers = iter([[Say("All"), Pause(said), Say(" is done.")], "With x."])
    judgements = iter([judge("done"), judge("replan", {"x": ""}), judge("done")])
    bench = build(
        judged=lambda _step, _text: next(judgements), answered=lambda _step, _text: next(answers), chunk_chars=4
    )
    task = await begin_answer(bench)

    await bench.say("And x.", FOLLOWUP)
    said.set()
    await asyncio.wait_for(task, 10)

    assert results(bench) == dict.fromkeys("aex", "ok")
    assert bench.texts(CompletionBody) == ["All is done.", "With x."]
    await check_conversation(bench)


async def test_the_input_of_each_model_call_of_a_plan_can_be_read_back() -> None:
    bench = build(planned=lambda _step, text: plan(NEEDS) if "not JSON" in text else "not JSON")
    await bench.say("Do all of it.")

    await bench.work()

    stored = {key.rpartition(".")[2]: data for key, data in bench.objects.stored.items()}
    inputs = {int(name): Manifest.model_validate_json(data) for name, data in stored.items() if name.isdigit()}
    assert set(inputs) == set(range(1, max(block.round for block in bench.blocks) + 1))
    for manifest in inputs.values():
        preamble = Preamble.model_validate_json(stored[manifest.system_sha256[:16]])
        assert manifest.segments[0].sha256 == hash_text(preamble.system)
    # Of several calls in a round, the last one is stored.
    assert "not JSON" in [part.text for part in inputs[1].segments]


async def test_clients_see_when_a_plan_is_made_and_judged() -> None:
    bench = build(planned=plan({"a": ""}))
    await bench.say("Do a.")

    await bench.work()

    sent = await bench.published()
    phases = [(event.round, event.data.phase) for event in sent if isinstance(event.data, ChatPhase)]
    for number in (1, max(block.round for block in bench.blocks)):
        assert [phase for round_number, phase in phases if round_number == number] == ["model_called", "model_thought"]


async def test_an_irreversible_call_of_a_lane_is_ambiguous_on_the_next_worker() -> None:
    pure, sent = DemoTool(strategy="exploration"), DemoTool("demo.send", effect=Effect.IRREVERSIBLE)
    pure.go_on.clear()
    sent.go_on.clear()

    def of_step(step: str, text: str) -> Script:
        if step == "p":
            return work_on(step, text)
        return answer("Perhaps.") if "It is unknown whether" in text else call("demo.send", {"text": "q"})

    bench = build(planned=plan({"p": "", "q": ""}), of_step=of_step, tools=(pure, sent))
    await bench.say("Do both.")
    first = bench.hire()
    working = asyncio.create_task(first.work())
    await asyncio.gather(pure.started.wait(), sent.started.wait())
    first.gate.dead.set()
    await working
    bench.expire_lease()
    pure.go_on.set()

    await bench.work()

    status = {block.body.tool_id: block.body.status for block in bench.blocks if isinstance(block.body, ToolResultBody)}
    assert status == {"demo.echo": "ok", "demo.send": "ambiguous"}
    assert (list(pure.calls.values()), sent.calls.total()) == ([2], 1)
    assert results(bench) == {"p": "ok", "q": "ok"}
    await check_turn(bench)


async def test_a_step_that_waits_for_a_person_does_not_hold_up_the_others() -> None:
    tools = DemoTool(strategy="exploration"), DemoTool("demo.ask", requires_approval=True)

    def of_step(step: str, text: str) -> Script:
        if step == "p":
            return work_on(step, text)
        return answer("Result of q.") if "echo: q" in text else call("demo.ask", {"text": "q"})

    bench = build(planned=plan({"p": "", "q": ""}), of_step=of_step, tools=tools)
    await bench.say("Do both.")
    await bench.work()
    waiting, ended = bench.turn_rows[0].status, results(bench)

    await approve(bench)
    await bench.work()

    approvals = [event.data for event in await bench.published() if isinstance(event.data, ChatApproval)]
    assert [(event.step_id, event.state) for event in approvals] == [("q", "pending"), ("q", "approved")]
    assert (waiting, ended) == (TurnStatus.WAITING, {"p": "ok"})
    assert results(bench) == {"p": "ok", "q": "ok"}
    await check_turn(bench)


async def test_an_approved_call_does_not_wait_for_the_other_steps() -> None:
    slow, asked = DemoTool(strategy="exploration"), DemoTool("demo.ask", requires_approval=True)
    slow.go_on.clear()

    def of_step(step: str, text: str) -> Script:
        if step == "p":
            return work_on(step, text)
        return answer("Result of q.") if "echo: q" in text else call("demo.ask", {"text": "q"})

    bench = build(planned=plan({"p": "", "q": ""}), of_step=of_step, tools=(slow, asked))
    await bench.say("Do both.")
    task = asyncio.create_task(bench.work())
    await until(lambda: slow.started.is_set() and bool(bench.platform.approvals))
    for _ in range(100):
        await asyncio.sleep(0)

    await approve(bench)
    await until(lambda: bool(results(bench)))
    early = results(bench)
    slow.go_on.set()
    await asyncio.wait_for(task, 10)

    assert early == {"q": "ok"}
    assert results(bench) == {"p": "ok", "q": "ok"}
    await check_turn(bench)


async def test_an_approved_call_needs_no_slot() -> None:
    slow, asked = DemoTool(strategy="exploration"), DemoTool("demo.ask", requires_approval=True)
    slow.go_on.clear()

    def of_step(step: str, text: str) -> Script:
        if step != "p":
            return work_on(step, text)
        return answer("Result of p.") if "echo: p" in text else call("demo.ask", {"text": "p"})

    bench = build(planned=plan({"p": "", "q": "", "r": "", "s": ""}), of_step=of_step, tools=(slow, asked))
    await bench.say("Do all four.")
    task = asyncio.create_task(bench.work())
    await until(lambda: slow.calls.total() == 3 and bool(bench.platform.approvals))

    await approve(bench)
    await until(lambda: asked.calls.total() == 1)
    early = results(bench)
    slow.go_on.set()
    await asyncio.wait_for(task, 10)

    assert early == {}
    assert results(bench) == dict.fromkeys("pqrs", "ok")
    await check_turn(bench)


async def approve(bench: Bench) -> None:
    (asked,) = [row.approval.id for row in bench.platform.approvals.values()]
    approval = IncomingSignal(bench.ids.signal(), SignalKind.APPROVE, "", approval_id=asked)
    await bench.inbox.accept_signal(ANN, bench.conversation_id, approval, None)
    for worker in bench.workers:
        worker.ring()


async def test_a_plan_chooses_model_and_tools_of_a_step() -> None:
    more = {"p": {"model_hint": "fast", "tools": ["demo.echo"]}, "q": {"model_hint": "unknown", "tools": ["demo.gone"]}}
    needs = {"p": "", "q": ""}
    bench = build(planned=plan(needs, **more), tools=(DemoTool(strategy="exploration"), DemoTool("demo.other")))
    fast = build().model
    bench.hinted = {"fast": fast}
    await bench.say("Do both.")

    await bench.work()

    (other,) = {text.split("[TOOLS]")[1].split("[")[0] for text in step_requests(bench, "q")}
    assert "demo.other" in other and "react.plan" not in other and "react.read" in other
    (narrow,) = {text.split("[TOOLS]")[1].split("[")[0] for text in map(read, fast.requests)}
    assert "demo.echo" in narrow and "demo.other" not in narrow and "react.read" in narrow
    assert len(fast.requests) == 2
    await check_turn(bench)


@pytest.mark.parametrize("codec", ["native", "json"])
async def test_steps_act_in_the_form_of_the_turn(codec: Any) -> None:
    def of_step(step: str, text: str) -> Script:
        if codec == "native":
            return f"Result of {step}."
        return json.dumps({"action": "final_answer", "answer": f"Result of {step}."})

    bench = build(of_step=of_step, codec=codec)
    await bench.say("Do all of it.")

    await bench.work()

    assert {result_text(bench, step) for step in "abcdef"} == {f"Result of {step}." for step in "abcdef"}
    await check_turn(bench)


async def test_a_draining_worker_hands_over_all_lanes() -> None:
    tool = DemoTool(strategy="exploration")
    tool.go_on.clear()
    bench = build(tools=(tool,))
    await bench.say("Do all of it.")
    worker = bench.hire()
    task = asyncio.create_task(worker.run_one())
    await until(lambda: tool.calls.total() == 2)
    assert worker.current is not None

    worker.current.request_handover()
    tool.go_on.set()
    await task

    assert bench.turn_rows[0].status is TurnStatus.QUEUED
    assert results(bench) == {}
    await bench.work()
    assert results(bench) == dict.fromkeys("abcdef", "ok")
    await check_turn(bench)


async def test_the_title_is_recorded_once_whatever_lanes_commit() -> None:
    bench = build(title_model=ScriptedModel([json.dumps({"title": "All of it"})]))
    await bench.say("Do all of it.")

    await bench.work()

    assert sum(isinstance(block.body, TitleBody) for block in bench.blocks) == 1


async def test_a_steer_while_the_plan_is_made_leads_to_a_plain_loop() -> None:
    bench = build(planned=lambda _step, _text: [Pause(asyncio.Event())])
    await bench.say("Do all of it.")
    _, task = await interrupt_steps(bench, when=1)

    await bench.signal(STEER, "Only greet me.")
    await asyncio.wait_for(task, 10)

    assert (results(bench), bench.texts(CompletionBody)) == ({}, ["Answered in a loop."])
    await check_conversation(bench)


async def test_a_followup_between_two_workers_replaces_the_draft_of_the_answer() -> None:
    answers = iter([[Say("All"), Pause(asyncio.Event())], "All of it, with x."])
    judgements = iter([judge("done"), judge("replan", {"x": ""}), judge("done")])
    bench = build(judged=lambda _step, _text: next(judgements), answered=lambda _step, _text: next(answers))
    await bench.say("Do all of it.")
    first = bench.hire()
    task = asyncio.create_task(first.work())
    await until(lambda: bool(bench.model.requests) and read(bench.model.requests[-1]).startswith("You write"))
    first.gate.dead.set()
    await task

    await bench.signal(FOLLOWUP, "And x.")
    bench.expire_lease()
    await bench.work()

    assert results(bench) == dict.fromkeys("aex", "ok")
    assert bench.texts(CompletionBody) == ["All of it, with x."]
    assert [exit.outcome for exit in bench.exits] == [Outcome.COMPLETED]
    await check_conversation(bench)


async def test_a_steer_during_the_answer_is_covered_by_the_only_answer() -> None:
    answers = iter([[Say("All"), Pause(asyncio.Event())], "Only a."])
    bench = build(answered=lambda _step, _text: next(answers), chunk_chars=4)
    task = await begin_answer(bench)

    await bench.signal(STEER, "Only say what a gave.")
    await asyncio.wait_for(task, 10)

    assert "Only say what a gave." in read(bench.model.requests[-1])
    assert (bench.texts(CompletionBody), bench.texts(DeferralBody)) == (["Only a."], [])
    assert [exit.outcome for exit in bench.exits] == [Outcome.COMPLETED]
    await check_conversation(bench)


@pytest.mark.parametrize("withdrawn_after", [None, 1])
async def test_a_steer_at_any_time_never_leads_to_an_account(withdrawn_after: int | None) -> None:
    """Also one that is withdrawn after some more steps of the worker."""

    async def play(at: int) -> int:
        slow: Script = [Say("All is"), Pause(0.01), Say(" done.")]
        bench = build(planned=plan({"a": ""}), answered=lambda _step, _text: slow)
        worker = bench.hire()
        await bench.say("Do it.")

        async def steer() -> None:
            if bench.turn_rows[-1].status.is_open:
                await bench.signal(STEER, "Quickly.")

        async def withdraw() -> None:
            for waiting in bench.waiting_signals():
                await bench.retract(waiting)

        worker.gate.at = {at: steer, at + (withdrawn_after or 10_000): withdraw}
        await worker.work()
        assert not any("could not write" in text for text in bench.texts(CompletionBody)), at
        assert {exit.outcome for exit in bench.exits} == {Outcome.COMPLETED}, at
        await check_conversation(bench)
        return worker.gate.steps

    for at in range(1, await play(10_000) + 1):
        await play(at)


@pytest.mark.parametrize(("kind", "outcome"), [(CANCEL, Outcome.CANCELLED), (STEER, Outcome.STOPPED)])
async def test_a_turn_that_is_ended_during_the_answer_shows_the_account(kind: SignalKind, outcome: Outcome) -> None:
    bench = build(answered=lambda _step, _text: [Say("All"), Pause(asyncio.Event())], chunk_chars=4)
    task = await begin_answer(bench)

    await bench.signal(kind)
    await asyncio.wait_for(task, 10)

    await check_account(bench, outcome)


async def test_a_turn_that_is_ended_between_two_workers_of_its_answer_shows_the_account() -> None:
    bench = build(answered=lambda _step, _text: [Say("All"), Pause(asyncio.Event())])
    await bench.say("Do all of it.")
    first = bench.hire()
    task = asyncio.create_task(first.work())
    await until(lambda: bool(bench.model.requests) and read(bench.model.requests[-1]).startswith("You write"))
    first.gate.dead.set()
    await task

    await bench.signal(STEER)
    bench.expire_lease()
    await bench.work()

    await check_account(bench, Outcome.STOPPED)


@pytest.mark.parametrize(("kind", "outcome"), [(CANCEL, Outcome.CANCELLED), (STEER, Outcome.STOPPED)])
async def test_a_person_who_ends_a_second_answer_keeps_the_first(kind: SignalKind, outcome: Outcome) -> None:
    said = asyncio.Event()
    answers = iter([[Say("All"), Pause(said), Say(" is done.")], [Say("And"), Pause(asyncio.Event())]])
    bench = build(judged=judge("done"), answered=lambda _step, _text: next(answers), chunk_chars=4)
    task = await begin_answer(bench)
    await bench.say("And x.", FOLLOWUP)
    said.set()
    await until(lambda: "And x." in read(bench.model.requests[-1]) and bench.model.unfinished == 1)

    await bench.signal(kind)
    await asyncio.wait_for(task, 10)

    assert bench.texts(CompletionBody) == ["All is done."]
    assert [exit.outcome for exit in bench.exits] == [outcome]
    await check_conversation(bench)


async def test_a_followup_during_an_answer_that_fails_is_covered_by_another_one() -> None:
    said = asyncio.Event()
    answers = iter([[Say("All"), Pause(said), DOWN], "All of it, with x."])
    bench = build(judged=judge("done"), answered=lambda _step, _text: next(answers), chunk_chars=4)
    task = await begin_answer(bench)

    await bench.signal(FOLLOWUP, "And x.")
    said.set()
    await asyncio.wait_for(task, 10)

    assert "And x." in read(bench.model.requests[-1])
    assert bench.texts(CompletionBody) == ["All of it, with x."]
    assert [exit.outcome for exit in bench.exits] == [Outcome.COMPLETED]
    await check_conversation(bench)


async def test_a_steer_that_is_withdrawn_before_it_is_applied_stops_no_step() -> None:
    hangs = iter([True, True])
    bench = build(of_step=lambda step, text: hang(step, text) if next(hangs, False) else work_on(step, text))
    await bench.say("Do all of it.")
    worker, task = await interrupt_steps(bench)

    async def withdraw(commit: Commit) -> None:
        if any(isinstance(block.body, StepResultBody) and block.body.status == "cancelled" for block in commit.blocks):
            for waiting in bench.waiting_signals():
                await bench.retract(waiting)

    worker.timelines.before_commit = withdraw
    await bench.signal(STEER, "Quickly.")
    await asyncio.wait_for(task, 10)

    assert results(bench) == dict.fromkeys("abcdef", "ok")
    await check_turn(bench)


async def test_a_crash_of_one_step_ends_the_others_with_the_turn() -> None:
    def of_step(step: str, text: str) -> Script:
        return [Fail(ZeroDivisionError("our fault"))] if step == "e" and "echo: e" in text else work_on(step, text)

    slow = DemoTool(strategy="exploration")
    bench = build(of_step=of_step, tools=(slow,))
    await bench.say("Do all of it.")
    for _ in range(MAX_ATTEMPTS):
        worker = bench.hire()
        worker.may_crash = True
        await worker.run_one()
        bench.expire_lease()

    (turn,) = bench.state().turns
    assert turn.error is not None
    assert results(bench)["e"] == "cancelled"
    assert {step.status for step in turn.plans[0].steps} <= {StepStatus.DONE, StepStatus.FAILED, StepStatus.PENDING}
    assert all(each.sealed for each in turn.step_rounds)
    await check_conversation(bench, ends_may_repeat=True)
