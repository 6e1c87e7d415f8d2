"""The limits of steps and of the turn that they belong to, and the last call of a step that has reached its own."""

import asyncio
import re
from collections.abc import Callable

import pytest
from turn_harness.checks import check_conversation
from turn_harness.plans import build_dag_bench as build
from turn_harness.plans import (
    check_turn,
    hang,
    interrupt_steps,
    lane_blocks,
    plan,
    result_text,
    results,
    step_requests,
    work_on,
)
from turn_harness.replies import NONSENSE, answer, call
from turn_harness.signals import STEER, withdraw_when_read

from chat_proc.agent.dag import step as step_module
from chat_proc.agent.kit import TurnLimits
from everturn.models.port import ContextLimitExceeded
from everturn.timeline.blocks import RoundStartBody
from everturn.timeline.turns import Outcome
from everturn_testing.models.scripted_model import Fail, Script


async def test_a_step_whose_replies_can_not_be_used_fails_and_says_so() -> None:
    bench = build(of_step=lambda step, text: NONSENSE if step == "b" else work_on(step, text))
    await bench.say("Do all of it.")

    await bench.work()

    assert results(bench) == dict.fromkeys("abcdef", "ok") | {"b": "failed"}
    assert (
        result_text(bench, "b")
        == "The step reached the limit on replies that could not be used. The model returned no usable answer."
    )
    assert "The step reached the limit" in step_requests(bench, "d")[0]
    await check_turn(bench)


async def test_a_step_whose_replies_can_not_be_used_has_a_last_call() -> None:
    bench = build(of_step=close_with(lambda _text: NONSENSE))
    await bench.say("Do all of it.")

    await bench.work()

    assert results(bench) == dict.fromkeys("abcdef", "ok")
    note = "(This result is incomplete: the step reached the limit on replies that could not be used.)"
    assert result_text(bench, "b") == f"What I have.\n\n{note}"
    await check_turn(bench)


def close_with(worked: Callable[[str], Script], closing: Script | None = None) -> Callable[[str, str], Script]:
    """The step `b` never ends its work by itself; its last call gives what it has."""

    def of_step(step: str, text: str) -> Script:
        if step != "b":
            return work_on(step, text)
        return (closing or answer("What I have.")) if "[CLOSING]" in text else worked(text)

    return of_step


async def test_a_step_can_not_use_up_the_rounds_of_the_others() -> None:
    count = step_module.MAX_STEP_ROUNDS
    bench = build(of_step=lambda step, text: call("demo.echo", {"text": "on"}) if step == "b" else work_on(step, text))
    await bench.say("Do all of it.")

    await bench.work()

    # One more round has the last call, which does not give a text.
    assert sum(isinstance(block.body, RoundStartBody) for block in lane_blocks(bench, "b")) == count + 1
    assert result_text(bench, "b").startswith(
        f"The step reached the limit of {count} rounds. The model returned no usable answer. It made these calls:\n"
    )
    assert "demo.echo (ok): echo: on" in result_text(bench, "b")
    assert results(bench)["b"] == "failed"
    await check_turn(bench)


def call_on(_text: str) -> Script:
    return call("demo.echo", {"text": "on"})


async def test_a_step_at_its_limit_has_a_last_call_for_its_result() -> None:
    bench = build(of_step=close_with(call_on))
    await bench.say("Do all of it.")

    await bench.work()

    assert results(bench) == dict.fromkeys("abcdef", "ok")
    note = f"(This result is incomplete: the step reached the limit of {step_module.MAX_STEP_ROUNDS} rounds.)"
    assert result_text(bench, "b") == f"What I have.\n\n{note}"
    assert note in step_requests(bench, "d")[0]
    await check_turn(bench)


async def test_the_model_of_a_step_counts_its_own_rounds() -> None:
    count = step_module.MAX_STEP_ROUNDS
    bench = build(of_step=close_with(call_on))
    await bench.say("Do all of it.")

    await bench.work()

    counted = [re.findall(r"Round (\S+)\n", text)[-1] for text in step_requests(bench, "b")]
    assert counted == [*(f"{number}/{count}" for number in range(1, count + 1)), f"{count}/{count}"]
    assert "rounds: this is the last one; answer now" in step_requests(bench, "b")[count - 1]
    assert "of them for messages" not in step_requests(bench, "b")[0]


async def test_the_model_of_a_step_sees_a_nearer_limit_of_the_turn() -> None:
    bench = build(planned=plan({"a": "", "b": "a"}), limits=TurnLimits(rounds=5))
    await bench.say("Do both.")

    await bench.work()

    # The plan has round 1, and the judgement round 4.
    assert "Round 1/4" in step_requests(bench, "a")[0]
    assert "Round 1/1" in step_requests(bench, "b")[0]


@pytest.mark.parametrize("failpoint", ["turn.before_first_token", "turn.mid_stream", "turn.before_step_result"])
async def test_a_worker_may_die_in_the_last_call_of_a_step(failpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "MAX_STEP_ROUNDS", 2)
    bench = build(planned=plan({"b": ""}), of_step=close_with(call_on))
    await bench.say("Do b.")
    nth = 1 if failpoint == "turn.before_step_result" else 3
    await bench.hire(failpoint=f"{failpoint}:{nth}:raise").work()
    bench.expire_lease()
    assert results(bench) == {}

    await bench.work()

    assert results(bench) == {"b": "ok"}
    assert sum(isinstance(block.body, RoundStartBody) for block in lane_blocks(bench, "b")) == 3
    assert result_text(bench, "b").startswith("What I have.\n\n(This result is incomplete:")
    await check_conversation(bench, ends_may_repeat=True)


async def test_a_steer_ends_the_last_call_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "MAX_STEP_ROUNDS", 2)
    bench = build(planned=plan({"b": ""}), of_step=close_with(call_on, hang("b", "")))
    await bench.say("Do b.")
    _, task = await interrupt_steps(bench, when=1)

    await bench.signal(STEER, "Only say what you know.")
    await asyncio.wait_for(task, 10)

    assert results(bench) == {"b": "cancelled"}
    await check_conversation(bench)


async def test_a_step_repeats_its_last_call_after_a_steer_that_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "MAX_STEP_ROUNDS", 2)
    closings = iter([hang("b", ""), answer("What I have.")])
    bench = build(
        planned=plan({"b": ""}), of_step=lambda _step, text: next(closings) if "[CLOSING]" in text else call_on(text)
    )
    withdraw_when_read(bench, monkeypatch)
    await bench.say("Do b.")
    _, task = await interrupt_steps(bench, when=1)

    await bench.signal(STEER, "Only say what you know.")
    await asyncio.wait_for(task, 10)

    assert results(bench) == {"b": "ok"}
    assert result_text(bench, "b").startswith("What I have.")
    await check_conversation(bench)


async def test_a_step_closes_without_the_results_that_do_not_fit() -> None:
    def read_more(text: str) -> Script:
        words = "long " * 8_000 if "echo: first" in text else "first"
        return call("demo.echo", {"text": words})

    bench = build(planned=plan({"b": ""}), of_step=close_with(read_more), max_tokens=6_000)
    await bench.say("Do b.")

    await bench.work()

    closing = step_requests(bench, "b")[-1]
    assert "echo: first" in closing and "long long" not in closing
    text = result_text(bench, "b")
    assert results(bench) == {"b": "ok"}
    assert text.startswith(
        "What I have.\n\n(This result is incomplete: the step reached the length limit of one request.)"
    )
    assert "does not consider the last calls of the step:\n- demo.echo (ok): echo: long long" in text
    await check_conversation(bench)


async def test_a_step_closes_without_the_results_that_its_provider_counts_as_too_long() -> None:
    too_long: Script = [Fail(ContextLimitExceeded("too long"))]

    def read_more(text: str) -> Script:
        if "echo: second" in text:
            return too_long
        return call("demo.echo", {"text": "second" if "echo: first" in text else "first"})

    bench = build(planned=plan({"b": ""}), of_step=close_with(read_more))
    await bench.say("Do b.")

    await bench.work()

    closing = step_requests(bench, "b")[-1]
    assert "echo: first" in closing and "echo: second" not in closing
    assert results(bench) == {"b": "ok"}
    assert "does not consider the last calls of the step:\n- demo.echo (ok): echo: second" in result_text(bench, "b")
    await check_conversation(bench)


async def test_the_limits_of_the_turn_hold_over_all_lanes() -> None:
    bench = build(limits=TurnLimits(rounds=7))
    await bench.say("Do all of it.")

    await bench.work()

    assert [exit.outcome for exit in bench.exits] == [Outcome.CAPPED]
    assert "failed" in results(bench).values()
    # One more round has the answer.
    assert bench.exits[0].rounds <= 8
    await check_turn(bench)
