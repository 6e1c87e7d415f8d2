"""Random conversations as a worker would play them: hypothesis generates them, a story plays them."""

from dataclasses import dataclass, field
from typing import Literal

from hypothesis import strategies as st

from everturn.core.ids import CallId
from everturn.events.turn_view import TurnPage, build_state
from everturn.events.views import StateView
from everturn.timeline import bodies
from everturn.timeline.turns import Outcome, SignalKind, SignalState
from everturn_testing.events.stories import PROJECT, TENANT, Story, make_artifact
from everturn_testing.turns.asking_stories import AskingStory, Settled

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
tales = st.lists(turns, min_size=1, max_size=2)


def play(tale: list[TurnScript]) -> AskingStory:
    """Play the tale as the worker would. Only the last turn may stay open."""
    story = AskingStory()
    for turn in tale:
        turn_id = story.start_turn("What is\nthis?")
        for one in turn.rounds:
            if one.lost:
                stream_round(story, one)
                story.lose_worker()
            play_round(story, one, turn_id)
        if turn.end == "open" and turn is tale[-1]:
            return story
        end_turn(story, turn)
    return story


def stream_round(story: AskingStory, one: Round) -> list[CallId]:
    story.start_round()
    for instance, thought in enumerate(one.thinking):
        story.add(bodies.ThinkingBody(text=story.stream("thinking", instance, thought), instance=instance))
    for instance, note in enumerate(one.notes):
        story.add(bodies.NotesBody(text=story.stream("notes", instance, note)))
    if one.attempt:
        story.add(bodies.AttemptBody(text=story.stream("answer", 0, one.attempt), reason="deferred"))
    if one.broken:
        story.add(bodies.RawDecisionBody(text="?", code="no_json"))
        story.add(bodies.NoticeBody(code="no_json", text="Say it again."))
    call_ids: list[CallId] = []
    for instance, (channel, content, late) in enumerate(one.written):
        path = f"outputs/{instance}.md"
        if not late:
            story.stream(channel, instance, content, artifact=path)
        params = {"path": path, "channel": channel, "content": "".join(content)}
        call_ids.append(story.add_call("react.write", params))
    for call in one.calls:
        call_ids.append(story.add_call("exec_tools.run", call.params, call.code))
        if call.asked:
            story.ask(call_ids[-1], "exec_tools.run", {"to": "ann"})
    return call_ids


def play_round(story: AskingStory, one: Round, turn_id: str) -> None:
    call_ids = stream_round(story, one)
    story.commit()
    for instance, (channel, content, late) in enumerate(one.written):
        if late:
            story.stream(channel, instance, content, artifact=f"outputs/{instance}.md")
    if one.said:
        story.say(one.said, "And this?")
    writes = [Call({}, "ok") for _ in one.written]
    for call_id, call in zip(call_ids, writes + one.calls, strict=True):
        run_call(story, call_id, call, turn_id)
    if one.said:
        story.settle_signals(SignalState.APPLIED)


def run_call(story: AskingStory, call_id: CallId, call: Call, turn_id: str) -> None:
    story.show_step(call_id)
    if call.repeated:
        story.lose_worker()
        story.show_step(call_id)
    if call.asked:
        story.show_question(call_id)
    if call.asked and call.asked != "pending":
        story.settle_question(call_id, call.asked, "So it is.")
    artifacts = tuple(
        make_artifact(story.records[-1].turn.id, name, visibility="internal" if name == "hidden.txt" else "external")
        for name in call.files
    )
    if call.plan:
        story.change_plan(call.plan, [turn_id, call_id])
    body = bodies.ToolResultBody.model_validate(
        {
            "tool_id": "exec_tools.run",
            "status": call.status,
            "text": "x" * 450,
            "artifacts": artifacts,
            "duration_ms": 3,
        }
    )
    story.add(body, call_id=call_id)
    story.commit()
    story.show_step(call_id)
    story.show_files(artifacts)


def end_turn(story: Story, turn: TurnScript) -> None:
    if turn.end in {"failed", "open"}:
        story.end_turn("failed")
        return
    if turn.end is not Outcome.CANCELLED:
        story.start_round()
        text = story.stream("answer", 0, turn.answer)
        story.answer(text, turn.cited)
    story.end_turn(Outcome(turn.end))


def read(page: TurnPage) -> StateView:
    return build_state(page, tenant=TENANT, project=PROJECT)


def empty(story: Story) -> StateView:
    return read(story.pages[0]).model_copy(update={"turns": (), "cursor": "0-0"})
