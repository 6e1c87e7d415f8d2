"""Whatever the model replies, whatever people say and when, wherever workers die: the central properties hold."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turn_harness.checks import check_conversation
from turn_harness.harness import ANN, Bench, BenchWorker
from turn_harness.replies import NONSENSE, answer, call, cut_answer
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from everturn.models.port import ModelFailed, ModelRequest
from everturn.timeline.turns import ExternalEvent, SignalKind
from everturn.turns.model import Effect
from everturn_testing.models.scripted_model import Fail, Say, Script, ScriptedModel, Think

WORDS = st.text(alphabet='ab \n[]{}"\\<é', max_size=12)


class TirelessModel(ScriptedModel):
    """Answers when its scripts are used up."""

    def generate(self, request: ModelRequest):
        if len(self.requests) >= len(self._scripts):
            self.add(answer("Nothing more to say.", notes="✓ [1]"))
        return super().generate(request)


def calls() -> st.SearchStrategy[str]:
    echo = st.builds(
        lambda tool, text, notes, thinking: call(tool, {"text": text}, notes=notes, thinking=thinking),
        st.sampled_from(["demo.echo", "demo.send", "demo.gone"]),
        WORDS,
        WORDS,
        WORDS,
    )
    write = st.builds(
        lambda path, channel, content, kind: call(
            "react.write", {"path": path, "channel": channel, "kind": kind, "content": content}, notes="writing"
        ),
        st.sampled_from(["outputs/a.md", "files/b.html", "../c", "d.json"]),
        st.sampled_from(["canvas", "timeline_text", "internal", "nowhere"]),
        WORDS,
        st.sampled_from(["display", "file"]),
    )
    plan = st.builds(
        lambda steps, notes: call("react.plan", {"mode": "new", "steps": steps}, notes=notes),
        st.lists(WORDS, max_size=3),
        st.sampled_from(["", "✓ [1] done"]),
    )
    return echo | write | plan


def answers() -> st.SearchStrategy[str]:
    full = st.builds(
        lambda text, notes, thinking, summary: answer(text, notes=notes, thinking=thinking, summary=summary),
        WORDS,
        st.sampled_from(["", "✓ [1] done", "words"]),
        WORDS,
        WORDS,
    )
    return full | st.builds(cut_answer, WORDS)


def scripts() -> st.SearchStrategy[Script]:
    broken = st.builds(
        lambda text, then: [Think("Hm."), Say(text), Fail(ModelFailed("cut", retryable=True, partial=then))],
        calls() | answers(),
        st.just(True),
    )
    several = st.lists(calls() | answers() | st.just(NONSENSE), min_size=2, max_size=6).map("".join)
    return st.one_of(calls(), answers(), st.just(NONSENSE), WORDS, broken, several)


@dataclass(frozen=True)
class Happening:
    """Something that happens when the worker makes this step."""

    step: int
    what: str


HAPPENINGS = st.builds(
    Happening,
    st.integers(1, 120),
    st.sampled_from(
        [
            *("followup", "steer", "stop", "cancel", "event", "late_record", "edit", "retract"),
            *("lose_events", "handover", "cut", "beat"),
        ]
    ),
)


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
            case "event":
                await bench.tell(ExternalEvent("form", {"n": 1}, iteration_credit=len(bench.platform.signals) % 2))
            case "late_record":
                await bench.tell(ExternalEvent("alert", reactive=False), "Noted.")
            case "edit" if waiting := bench.waiting_signals():
                await bench.inbox.save_signal_text(ANN, bench.conversation_id, waiting[-1], "Rather this.")
            case "retract" if waiting := bench.waiting_signals():
                await bench.retract(waiting[-1])
            case "lose_events":
                bench.events.lose_all()
            case "handover" if worker.current is not None:
                worker.current.request_handover()
            case "cut" if worker.current is not None:
                worker.current.interrupt()
            case "beat" if worker.current is not None:
                worker.current.notice_inbox(bench.platform.conversations[bench.conversation_id].inbox_seq)
            case _:
                pass

    return act


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    replies=st.lists(scripts(), max_size=6),
    happenings=st.lists(HAPPENINGS, max_size=5),
    deaths=st.lists(st.integers(1, 120), max_size=3),
    rounds=st.integers(1, 4),
    deaf=st.booleans(),
    fanout=st.booleans(),
)
async def test_every_accepted_message_ends_once_and_all_views_agree(
    replies: list[Script], happenings: list[Happening], deaths: list[int], rounds: int, deaf: bool, fanout: bool
) -> None:
    send = DemoTool("demo.send", effect=Effect.IRREVERSIBLE, strategy="neutral")
    tools = [DemoTool(strategy="exploration"), send]
    model = TirelessModel(replies, chunk_chars=5)
    bench = Bench(model=model, tools=tools, limits=TurnLimits(rounds=rounds), fanout=fanout)
    await bench.say("Hello.")

    for dies_at in [*deaths, None]:
        worker = bench.hire(dies_at=dies_at)
        worker.deaf = deaf
        worker.gate.pass_time = partial(bench.clock.advance, 0.001)
        worker.gate.at = {item.step: build_action(bench, worker, item.what) for item in happenings}
        await worker.work()
        bench.expire_lease()
    await bench.work()

    assert all(count == 1 for count in send.calls.values())
    lost = any(item.what == "lose_events" for item in happenings)
    await check_conversation(bench, ends_may_repeat=bool(deaths) or lost, events_may_be_lost=lost)
