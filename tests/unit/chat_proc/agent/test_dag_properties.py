"""Whatever a plan is, whatever people say and when, wherever workers die: each step ends once, and the turn too."""

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, BenchWorker
from turn_harness.plans import build_dag_bench, judge, plan, work_on
from turn_harness.replies import NONSENSE, answer, call
from turn_harness.tools import DemoTool

from chat_proc.agent.dag.loop import build_step_account
from chat_proc.agent.kit import TurnLimits
from everturn.models.port import ModelFailed
from everturn.timeline.blocks import CompletionBody, ExitBody, StepResultBody
from everturn.timeline.turns import Outcome, SignalKind
from everturn.timeline.workflow import Workflow
from everturn.turns.model import Effect
from everturn_testing.models.scripted_model import Fail, Script

IDS = "abcdef"
DOWN: Script = [Fail(ModelFailed("Down."))]
ACCOUNT = build_step_account(Workflow())
HAPPENINGS = st.tuples(
    st.integers(1, 160),
    st.sampled_from(["followup", "steer", "stop", "cancel", "retract", "handover", "cut", "lose_events"]),
)


@st.composite
def plans(draw: st.DrawFn) -> str:
    count = draw(st.integers(1, len(IDS)))
    needs = {
        step: "".join(sorted(draw(st.sets(st.sampled_from(IDS[:n]), max_size=2)))) if n else ""
        for n, step in enumerate(IDS[:count])
    }
    return plan(needs)


def build_action(bench: Bench, worker: BenchWorker, what: str) -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        is_open = bench.turn_rows[-1].status.is_open
        match what:
            case "followup":
                await bench.say("More.", SignalKind.FOLLOWUP)
            case "steer" if is_open:
                await bench.signal(SignalKind.STEER, "Otherwise.")
            case "stop" if is_open:
                await bench.signal(SignalKind.STEER)
            case "cancel" if is_open:
                await bench.signal(SignalKind.CANCEL)
            case "retract" if waiting := bench.waiting_signals():
                await bench.retract(waiting[-1])
            case "lose_events":
                bench.events.lose_all()
            case "handover" if worker.current is not None:
                worker.current.request_handover()
            case "cut" if worker.current is not None:
                worker.current.interrupt()
            case _:
                pass

    return act


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    planned=plans(),
    judged=st.lists(st.sampled_from([judge(), judge("done"), judge("replan", {"x": ""}), "?"]), max_size=4),
    hard=st.dictionaries(
        st.sampled_from(IDS), st.sampled_from(["nonsense", "empty", "down", "send", "both"]), max_size=2
    ),
    answered=st.lists(st.sampled_from(["All is done.", "", "down"]), max_size=2),
    happenings=st.lists(HAPPENINGS, max_size=4),
    deaths=st.lists(st.integers(1, 160), max_size=3),
    rounds=st.sampled_from([6, 12, 100]),
    deaf=st.booleans(),
)
async def test_every_step_and_every_turn_ends_once_and_all_views_agree(
    planned: str,
    judged: list[str],
    hard: dict[str, str],
    answered: list[str],
    happenings: list[tuple[int, str]],
    deaths: list[int],
    rounds: int,
    deaf: bool,
) -> None:
    send = DemoTool("demo.send", effect=Effect.IRREVERSIBLE, strategy="neutral")
    left, answers = list(judged), list(answered)

    def of_step(step: str, text: str) -> Script:
        match hard.get(step):
            case "nonsense":
                return NONSENSE
            case "empty":
                return ""
            case "down":
                return DOWN if f"echo: {step}" in text else work_on(step, text)
            case "send" if "demo.send" not in text.rpartition("Do only")[2]:
                return call("demo.send", {"text": step})
            case "both":
                return (
                    work_on(step, text)
                    if f"echo: {step}" not in text
                    else call("demo.send", {"text": step}) + answer(step)
                )
            case _:
                return work_on(step, text)

    def answer_all(_step: str, _text: str) -> Script:
        said = answers.pop(0) if answers else "All is done."
        return DOWN if said == "down" else said

    bench = build_dag_bench(
        planned=planned,
        judged=lambda _step, _text: left.pop(0) if left else judge(),
        of_step=of_step,
        answered=answer_all,
        chunk_chars=40,
        tools=(DemoTool(strategy="exploration"), send),
        limits=TurnLimits(rounds=rounds),
    )
    await bench.say("Hello.")

    for dies_at in [*deaths, None]:
        worker = bench.hire(dies_at=dies_at)
        worker.deaf = deaf
        worker.gate.pass_time = partial(bench.clock.advance, 0.001)
        worker.gate.at = {step: build_action(bench, worker, what) for step, what in happenings}
        await worker.work()
        bench.expire_lease()
    await bench.work()

    assert all(count == 1 for count in send.calls.values())
    ended = [block for block in bench.blocks if isinstance(block.body, StepResultBody)]
    assert set(Counter((block.turn_id, block.body.step) for block in ended).values()) <= {1}, ended
    assert {hard.get(block.body.step, "both") for block in ended if block.body.status == "ok"} <= {"send", "both"}
    may_fail = rounds < 100 or not {"", "down"}.isdisjoint(answered)
    for turn in bench.turn_rows:
        *own, last = [block.body for block in bench.blocks if block.turn_id == turn.id]
        accounts = [body for body in own if isinstance(body, CompletionBody) and body.text.startswith(ACCOUNT)]
        assert isinstance(last, ExitBody)
        assert may_fail or last.outcome is not Outcome.CAPPED, last
        assert may_fail or not accounts or last.outcome in (Outcome.CANCELLED, Outcome.STOPPED), last
    lost = any(what == "lose_events" for _, what in happenings)
    await check_conversation(bench, ends_may_repeat=bool(deaths) or lost, events_may_be_lost=lost)
