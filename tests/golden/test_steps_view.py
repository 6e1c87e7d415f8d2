"""The view `steps` of a whole turn: what simple clients receive of it, live, after a resume, and as a snapshot."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.plans import build_dag_bench
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.agent.loop import AgentLoop, LoopResult
from chat_proc.turn.leased import LeasedTurn
from everturn.core.clock import iso
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.events.cursor import ORIGIN, EventCursor, try_parse_cursor
from everturn.events.model import ChatPhase, Envelope, StreamSnapshot
from everturn.events.stream import Entry, EventsLost
from everturn.models.port import ModelPiece, ModelRequest
from everturn.timeline.turns import SignalKind
from everturn_testing.core import FixedClock
from everturn_testing.models.scripted_model import Say, Script, ScriptedModel, Think
from ingress.metrics import IngressMetrics
from ingress.stream.feed import Feed
from ingress.stream.frames import build_frame
from ingress.stream.hub import Hub
from ingress.stream.rows import Head, Snapshot, StreamRows
from ingress.stream.steps import StepsProjector, project_steps

SUMMARY = "## Active request\n- compare the sales\n## Done\n- read the sales\n## Critical facts\n- 4711 in total\n"
MAX_SHOWN_CHARS = 100
_ID = re.compile(r"\b(turn|call)_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-0*([0-9a-f]+)")
Event = tuple[str, dict[str, Any]]


class SelectingLoop(AgentLoop):
    """Reports the selection of tools before the first round."""

    async def run(self, turn: LeasedTurn, *, takeovers: int = 0) -> LoopResult:
        turn.emit(ChatPhase(phase="selecting_tools", total_tools=30))
        return await super().run(turn, takeovers=takeovers)


class BenchRows(StreamRows):
    """The rows of a bench's conversation."""

    def __init__(self, bench: Bench) -> None:
        nothing = cast(Any, None)
        super().__init__(conversations=nothing, turns=nothing, inbox=nothing, queue=nothing, clock=FixedClock())
        self._bench = bench

    async def check_owner(self, principal: Principal, conversation_id: ConversationId) -> None:
        """It belongs to the caller."""

    async def load_head(self, principal: Principal, conversation_id: ConversationId) -> Head:
        return Head(b"", queued=False)

    async def load_snapshot(self, principal: Principal, conversation_id: ConversationId) -> Snapshot:
        state = self._bench.state()
        frame = build_frame(
            StreamSnapshot(state=state), conversation_id=conversation_id, ts=iso(self._bench.clock.now()), cursor="1-1"
        )
        return Snapshot(ORIGIN, frame, queued=False)


class ModelOfRounds(ScriptedModel):
    """Gives the reply of the round that is next, so a round that is generated again gets the same one."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        self.requests.append(request)
        script = self._bench.scripts[self._bench.state().turns[-1].sealed_round]
        async with aclosing(ScriptedModel([script]).generate(request)) as pieces:
            async for piece in pieces:
                yield piece


class NoHints:
    async def listen(self, listening: Callable[[], None]) -> Any:
        await asyncio.Event().wait()
        yield


def build(monkeypatch: pytest.MonkeyPatch) -> tuple[Bench, DemoTool]:
    """A model that thinks; its first call gives a long result, its second one fails. The first tool is returned."""
    monkeypatch.setattr("chat_proc.agent.dag.loop.AgentLoop", SelectingLoop)
    echo, rates = DemoTool(), DemoTool("demo.rates")
    rates.error = RuntimeError("There are no rates today.")
    scripts: tuple[Script, ...] = (
        [Think("I read the sales first."), Say(call("demo.echo", {"text": "sales " + "4711 " * 7_000}))],
        [Think("They also want euros."), Say(call("demo.rates", {"text": "EUR"}, thinking="The rates are in a tool."))],
        [Think("That must do."), Say(answer("Sales are 4711. I have no rates for euros."))],
    )
    summaries = ScriptedModel([SUMMARY] * 4)
    return Bench(*scripts, tools=[echo, rates], summary_model=summaries, max_tokens=4_800, tick_ms=0), echo


async def play(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The whole turn, with a followup during the first call and a summary before the last round."""
    bench, echo = build(monkeypatch)
    echo.go_on.clear()
    await bench.say("Compare the sales.")
    working = asyncio.create_task(bench.work())
    await echo.started.wait()
    await bench.signal(SignalKind.FOLLOWUP, "In euros, please.")
    echo.go_on.set()
    await working
    await check_conversation(bench)
    return bench


async def follow(bench: Bench, after: EventCursor | None) -> list[Event]:
    """What a client at this position receives, up to the end of the turn."""
    hub = Hub(
        reader=bench.events,
        hints=cast(Any, NoHints()),
        rows=BenchRows(bench),
        metrics=IngressMetrics(),
        queue_bytes=1_000_000,
    )
    client = await hub.open(Principal("acme", "main", "ann"), bench.conversation_id, after, None)
    chunks = project_steps(Feed(hub, heartbeat_s=60, unix_now=lambda: 0.0).chunks(client))
    received = ""
    async with asyncio.timeout(10), aclosing(chunks):
        async for chunk in chunks:
            received += chunk.decode()
            if "event: done\n" in received:
                break
    hub.close(client)
    return [event for frame in received.split("\n\n") if (event := try_read(frame)) is not None]


def try_read(frame: str) -> Event | None:
    """Name and payload of a frame; None if it has only an id."""
    fields = dict(line.split(": ", 1) for line in frame.split("\n") if line)
    if "event" not in fields:
        return None
    data = json.loads(fields["data"])
    assert data.get("id") == fields.get("id")
    return fields["event"], data


def render(events: list[Event]) -> list[str]:
    """A line for each event. Pieces of the answer are joined, because where they are cut does not matter."""
    lines: list[str] = []
    pieces: list[str] = []
    for name, data in events:
        shown = {key: value for key, value in data.items() if key not in ("id", "conversation_id")}
        if shown.get("status") == "delta":
            pieces.append(shown["content"])
            del lines[len(lines) - (len(pieces) > 1) :]
            shown["content"] = "".join(pieces)
        else:
            pieces = []
        lines.append(_ID.sub(r"\1_\2", f"{name} {json.dumps(shorten(shown), ensure_ascii=False)}"))
    return lines


def shorten(value: Any) -> Any:
    match value:
        case str() if len(value) > MAX_SHOWN_CHARS:
            return f"{value[:MAX_SHOWN_CHARS]}… ({len(value)} characters)"
        case dict():
            return {key: shorten(each) for key, each in cast(dict[str, Any], value).items()}
        case _:
            return value


async def test_the_view_of_a_turn_is_as_it_was_recorded(
    monkeypatch: pytest.MonkeyPatch, check_golden: Callable[[str, str], None]
) -> None:
    bench = await play(monkeypatch)

    events = await follow(bench, ORIGIN)

    check_golden("steps_view", "\n".join(render(events)) + "\n")
    assert {data["conversation_id"] for _, data in events} == {bench.conversation_id}


GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "show-the-steps-of-a-turn.md"


def test_the_guide_shows_every_recorded_event_with_its_fields() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| `(\{.*\})` \|$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    recorded = (Path(__file__).parent / "turns" / "steps_view.txt").read_text(encoding="utf-8").splitlines()

    guided = {describe_form(name, json.loads(example)) for name, example in rows}
    assert guided >= {describe_form(name, json.loads(data)) for name, data in (line.split(" ", 1) for line in recorded)}
    assert {name for name, _ in rows} >= {"approval", "reset", "server_shutdown"}


def describe_form(name: str, data: dict[str, Any]) -> tuple[object, ...]:
    """What kind of event it is, and its fields in order."""
    return name, data.get("type"), data.get("status"), *data


async def test_a_client_that_resumes_anywhere_gets_exactly_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = await play(monkeypatch)
    whole = (await follow(bench, ORIGIN))[1:]
    cursors = [data["id"] for _, data in whole if "id" in data][:-1]

    for cursor in cursors:
        ready, *rest = await follow(bench, try_parse_cursor(cursor))
        (at,) = [n for n, (_, data) in enumerate(whole) if data.get("id") == cursor]
        assert ready[0] == "ready"
        assert rest == whole[at + 1 :]


async def test_a_snapshot_shows_the_same_as_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = await play(monkeypatch)

    ready, *shown = render(await follow(bench, None))

    assert (ready, shown[0]) == ('ready {"cursor": null}', 'reset {"turn_id": null}')
    assert shown[1:] == without_progress(render(await follow(bench, ORIGIN)))


async def test_a_reset_in_a_plan_of_steps_shows_the_same_as_the_events() -> None:
    bench = build_dag_bench(tools=(DemoTool(strategy="exploration"),))
    await bench.say("Do all of it.")
    await bench.work()
    published = await bench.published()
    live = show_steps(published)

    assert len(bench.snapshots) > 30
    for state in bench.snapshots:
        reset = Envelope(type="stream.snapshot", ts="", conversation_id="c", data=StreamSnapshot(state=state))
        later = [each for each in published if (try_parse_cursor(each.id) or ORIGIN) > try_parse_cursor(state.cursor)]
        assert show_steps([reset, *later]) == live


async def test_the_state_of_a_whole_plan_shows_the_same_as_its_events() -> None:
    bench = build_dag_bench()
    await bench.say("Do all of it.")
    await bench.work()

    shown = without_progress(render(await follow(bench, None)))
    # Rounds of several steps have no order among each other.
    assert Counter(shown) == Counter(without_progress(render(await follow(bench, ORIGIN))))


def show_steps(envelopes: list[Envelope]) -> tuple[set[str], Counter[str]]:
    """The calls and the thinking of steps of plans. Rounds of several steps have no order among each other, and a call,
    which has a key, may be shown again."""
    projector = StepsProjector()
    shown = [each for envelope in envelopes for each in projector.project(envelope) if "step_id" in each[1]]
    thinking = [(name, data) for name, data in shown if data["type"] == "thinking"]
    return set(render([each for each in shown if each not in thinking])), Counter(render(thinking))


FAILPOINTS = (
    "turn.opened:1",
    "turn.before_first_token:1",
    "turn.before_first_token:2",
    "turn.mid_stream:2",
    "turn.before_c1:1",
    "turn.after_c1:2",
    "turn.in_tool:1",
    "turn.before_c2:1",
    "turn.after_c2:1",
    "turn.after_c2:2",
    "turn.before_c3:1",
    "turn.after_c3:1",
    "turn.published:1",
)


@pytest.mark.parametrize("failpoint", FAILPOINTS)
async def test_a_client_of_a_killed_worker_is_shown_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, failpoint: str
) -> None:
    bench, _ = build(monkeypatch)
    bench.model = ModelOfRounds(bench)
    await bench.say("Compare the sales.")
    await bench.hire(failpoint=f"{failpoint}:raise").work()
    bench.expire_lease()

    await bench.work()

    await check_conversation(bench)
    await check_last_state(bench)


@pytest.mark.parametrize("lost", range(1, 9))
async def test_a_client_that_missed_an_entry_is_shown_nothing_twice(monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    bench, _ = build(monkeypatch)
    publish, calls = bench.events.publish, 0

    async def lose_one(conversation_id: ConversationId, entry: Entry, **how: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == lost:
            raise EventsLost(conversation_id)
        await publish(conversation_id, entry, **how)

    monkeypatch.setattr(bench.events, "publish", lose_one)
    await bench.say("Compare the sales.")

    await bench.work()

    assert calls > lost
    await check_last_state(bench)


async def check_last_state(bench: Bench) -> None:
    """What a client has shown since its last reset is what a new client is shown."""
    live = render(await follow(bench, ORIGIN))
    begin = max((n for n, line in enumerate(live) if line.startswith("reset ")), default=0)
    shown = render(await follow(bench, None))
    assert without_progress(live[begin:]) == without_progress(shown)


def without_progress(lines: list[str]) -> list[str]:
    """Only what belongs to the state of the turn."""
    return [line for line in lines if not line.startswith(("ready ", "phase ", "compact ", "reset "))]
