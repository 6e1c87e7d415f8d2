"""An example of each event, and random conversations: hypothesis generates them, a scenario plays them as a worker."""

from dataclasses import dataclass, field
from typing import Literal

from hypothesis import strategies as st

from everturn.conversations.model import ConversationView
from everturn.core.errors import problem
from everturn.core.ids import CallId
from everturn.events import model as events
from everturn.events.model import AnyEvent
from everturn.events.turn_view import (
    TurnPage,
    build_state,
)
from everturn.events.views import CitationView, FileView, StateView, TurnView
from everturn.timeline.blocks import (
    AttemptBody,
    NotesBody,
    NoticeBody,
    RawDecisionBody,
    ThinkingBody,
    ToolResultBody,
)
from everturn.timeline.plans import PlanSnapshot
from everturn.timeline.turns import Outcome, SignalKind, SignalState, TurnUsage
from everturn_testing.events.scenarios import PROJECT, TENANT, Scenario, make_artifact
from everturn_testing.turns.approval_scenarios import ApprovalScenario, Settled

_FILE = FileView(
    artifact_id="art_1",
    ref="fi:1",
    rn="ef:1",
    filename="a",
    mime="b",
    size=1,
    visibility="external",
    url="/",
    verdict="v",
)
_FAILURE = problem("model", "The model failed.", 502)
_TURN = TurnView(turn_id="turn_1", ordinal=1, status="failed", text="Hi", error=_FAILURE, files=(_FILE,))
_CONVERSATION = ConversationView(conversation_id="conv_1", title="", state="idle", created_at="", last_activity_at="")
_PLAN = PlanSnapshot.model_validate(
    {
        "plan_id": "plan_1",
        "steps": [{"n": 1, "label": "One"}],
        "status": "open",
        "current": True,
        "origin_turn_id": "turn_1",
        "last_turn_id": "turn_1",
        "snapshot_ref": "ar:1",
    }
)
EXAMPLES: tuple[AnyEvent, ...] = (
    events.Ready(),
    events.ConvStatus(state="queued", turn_id="turn_1", position=0),
    events.ConvTitle(title="Ünï"),
    events.ChatStart(turn_id="turn_1", ordinal=1, text="Hi", attachments=(_FILE,)),
    events.ChatStep(step="s", status="error", title="t", params={"a": [None, {"b": None}], "c": 1.5}),
    events.ChatDelta(channel="answer", instance=0, index=3, text="a\n\nb", marker="answer"),
    events.ChatPlan(plan=_PLAN),
    events.ChatFiles(files=(_FILE,)),
    events.ChatCitations(sources=(CitationView(sid=1, title="", url="https://a.test", source_type="web"),)),
    events.ChatFollowups(items=("More?",)),
    events.ChatCompaction(status="started", reason="soft", before_tokens=60_000),
    events.ChatPhase(phase="model_retrying", retry_in_ms=900, attempt=2, max_attempts=8, reason="rate_limited"),
    events.ChatTool(call_id="call_1-1", tool_id="a.b", kind="data", data={"done": 3}),
    events.ChatSignal(signal_id="sig_1", kind="steer", state="accepted", text=""),
    events.ChatApproval(
        approval_id="appr_1", call_id="call_1", tool_id="a.b", params={"n": 1}, state="pending", expires_at="later"
    ),
    events.ChatRewind(turn=_TURN),
    events.ChatComplete(outcome="cut", cut_reason="length", rounds=1, usage=TurnUsage(cost_known=False), elapsed_ms=1),
    events.ChatError(problem=_FAILURE, rounds=1, usage=TurnUsage(cost_usd=0.1), elapsed_ms=1),
    events.StreamSnapshot(state=StateView(conversation=_CONVERSATION, turns=(_TURN,), cursor="1-1")),
    events.StreamGap(after="1-1"),
    events.ServerShutdown(retry_ms=10),
)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=8)
pieces = st.lists(texts, min_size=1, max_size=3)


@dataclass(frozen=True)
class Call:
    params: dict[str, object]
    status: str
    code: str | None = None
    files: tuple[str, ...] = ()
    plan: str = ""
    asked: Settled | Literal["pending"] | None = None
    """What becomes of the question whether it may be made, if one is asked."""
    repeated: bool = False
    """The worker dies in this call; a successor runs it again."""


@dataclass(frozen=True)
class Round:
    thinking: list[list[str]] = field(default_factory=list[list[str]])
    notes: list[list[str]] = field(default_factory=list[list[str]])
    written: list[tuple[str, list[str], bool]] = field(default_factory=list[tuple[str, list[str], bool]])
    calls: list[Call] = field(default_factory=list[Call])
    attempt: list[str] = field(default_factory=list[str])
    broken: bool = False
    lost: bool = False
    """The worker dies before the decision is committed; the round is generated again."""
    said: SignalKind | None = None


@dataclass(frozen=True)
class TurnScript:
    rounds: list[Round]
    end: Outcome | str
    answer: list[str]
    cited: tuple[int, ...] = ()


values = st.one_of(
    st.none(), st.integers(), texts, st.lists(texts, max_size=2), st.dictionaries(texts, texts, max_size=2)
)
calls = st.builds(
    Call,
    params=st.dictionaries(st.sampled_from(["path", "content", "prog_name", "other"]), values, max_size=3),
    status=st.sampled_from(["ok", "error", "ambiguous", "cancelled"]),
    code=st.one_of(st.none(), texts),
    files=st.lists(st.sampled_from(["a.png", "b.csv", "hidden.txt"]), max_size=2).map(tuple),
    plan=st.sampled_from(["", "p1", "p2"]),
    asked=st.sampled_from([None, None, "pending", "approved", "denied", "expired", "withdrawn"]),
    repeated=st.booleans(),
)
written = st.tuples(st.sampled_from(["canvas", "timeline_text"]), pieces, st.booleans())
rounds = st.builds(
    Round,
    thinking=st.lists(pieces, max_size=2),
    notes=st.lists(pieces, max_size=2),
    written=st.lists(written, max_size=2),
    calls=st.lists(calls, max_size=2),
    attempt=st.one_of(st.just(list[str]()), pieces),
    broken=st.booleans(),
    lost=st.booleans(),
    said=st.one_of(st.none(), st.sampled_from(SignalKind)),
)
ends = st.one_of(st.sampled_from(Outcome), st.just("failed"), st.just("open"))
cited = st.lists(st.integers(1, 4), max_size=3, unique=True).map(tuple)
turns = st.builds(TurnScript, rounds=st.lists(rounds, max_size=3), end=ends, answer=pieces, cited=cited)
turn_scripts = st.lists(turns, min_size=1, max_size=2)


def play(scripts: list[TurnScript]) -> ApprovalScenario:
    """Play the scripts as the worker would. Only the last turn may stay open."""
    scenario = ApprovalScenario()
    for turn in scripts:
        turn_id = scenario.start_turn("What is\nthis?")
        for one in turn.rounds:
            if one.lost:
                stream_round(scenario, one)
                scenario.lose_worker()
            play_round(scenario, one, turn_id)
        if turn.end == "open" and turn is scripts[-1]:
            return scenario
        end_turn(scenario, turn)
    return scenario


def stream_round(scenario: ApprovalScenario, one: Round) -> list[CallId]:
    scenario.start_round()
    for instance, thought in enumerate(one.thinking):
        scenario.add(ThinkingBody(text=scenario.stream("thinking", instance, thought), instance=instance))
    for instance, note in enumerate(one.notes):
        scenario.add(NotesBody(text=scenario.stream("notes", instance, note)))
    if one.attempt:
        scenario.add(AttemptBody(text=scenario.stream("answer", 0, one.attempt), reason="deferred"))
    if one.broken:
        scenario.add(RawDecisionBody(text="?", code="no_json"))
        scenario.add(NoticeBody(code="no_json", text="Say it again."))
    call_ids: list[CallId] = []
    for instance, (channel, content, late) in enumerate(one.written):
        path = f"outputs/{instance}.md"
        if not late:
            scenario.stream(channel, instance, content, artifact=path)
        params = {"path": path, "channel": channel, "content": "".join(content)}
        call_ids.append(scenario.add_call("react.write", params))
    for call in one.calls:
        call_ids.append(scenario.add_call("exec_tools.run", call.params, call.code))
        if call.asked:
            scenario.ask(call_ids[-1], "exec_tools.run", {"to": "ann"})
    return call_ids


def play_round(scenario: ApprovalScenario, one: Round, turn_id: str) -> None:
    call_ids = stream_round(scenario, one)
    scenario.commit()
    for instance, (channel, content, late) in enumerate(one.written):
        if late:
            scenario.stream(channel, instance, content, artifact=f"outputs/{instance}.md")
    if one.said:
        scenario.say(one.said, "And this?")
    writes = [Call({}, "ok") for _ in one.written]
    for call_id, call in zip(call_ids, writes + one.calls, strict=True):
        run_call(scenario, call_id, call, turn_id)
    if one.said:
        scenario.settle_signals(SignalState.APPLIED)


def run_call(scenario: ApprovalScenario, call_id: CallId, call: Call, turn_id: str) -> None:
    scenario.show_step(call_id)
    if call.repeated:
        scenario.lose_worker()
        scenario.show_step(call_id)
    if call.asked:
        scenario.show_question(call_id)
    if call.asked and call.asked != "pending":
        scenario.settle_question(call_id, call.asked, "So it is.")
    artifacts = tuple(
        make_artifact(scenario.records[-1].turn.id, name, visibility="internal" if name == "hidden.txt" else "external")
        for name in call.files
    )
    if call.plan:
        scenario.change_plan(call.plan, [turn_id, call_id])
    body = ToolResultBody.model_validate(
        {
            "tool_id": "exec_tools.run",
            "status": call.status,
            "text": "x" * 450,
            "artifacts": artifacts,
            "duration_ms": 3,
        }
    )
    scenario.add(body, call_id=call_id)
    scenario.commit()
    scenario.show_step(call_id)
    scenario.show_files(artifacts)


def end_turn(scenario: Scenario, turn: TurnScript) -> None:
    if turn.end in {"failed", "open"}:
        scenario.end_turn("failed")
        return
    if turn.end is not Outcome.CANCELLED:
        scenario.start_round()
        text = scenario.stream("answer", 0, turn.answer)
        scenario.answer(text, turn.cited)
    scenario.end_turn(Outcome(turn.end))


def read(page: TurnPage) -> StateView:
    return build_state(page, tenant=TENANT, project=PROJECT)


def empty(scenario: Scenario) -> StateView:
    return read(scenario.pages[0]).model_copy(update={"turns": (), "cursor": "0-0"})
