"""A simulated worker in memory: it commits blocks and emits events in the order of the real one, without I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from everturn.conversations.model import Conversation, ConversationState, ConversationView
from everturn.core.clock import iso
from everturn.core.errors import problem
from everturn.core.ids import ArtifactId, CallId, PlanId, RandomIds, SignalId, TurnId
from everturn.core.refs import named_artifact_ref, output_ref, plan_ref
from everturn.events import model as events
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.model import AnyEvent, Envelope
from everturn.events.turn_view import (
    TurnPage,
    TurnRecord,
    build_answer_events,
    build_file_view,
    build_signal_event,
    build_signal_view,
    build_start_event,
    build_step_event,
    build_turn_view,
    format_of_path,
    try_build_terminal_event,
)
from everturn.events.views import CitationView, FileView, StateView, TurnView
from everturn.files.model import Artifact, ArtifactKind
from everturn.timeline import bodies
from everturn.timeline.blocks import GENESIS_HASH, Block, BlockDraft, BlockType, chain_blocks
from everturn.timeline.bodies import Body
from everturn.timeline.plans import PlanSnapshot, PlanStatus, PlanStep
from everturn.timeline.sources import Source, build_citations
from everturn.timeline.turns import Outcome, Signal, SignalKind, SignalState, Turn, TurnRequest, TurnStatus, TurnUsage

TENANT, PROJECT = "default", "default"
BEGINNING = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_TYPE_OF = {kind.traits.body: kind for kind in BlockType if kind.traits.body is not bodies.SignalBody}

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


class Scenario:
    """One conversation. `pages` are what REST would read after each commit, `events` what the stream would contain.

    Texts are streamed first and committed with the next `commit`; the event of a hint has no id.
    """

    def __init__(self) -> None:
        ticks = iter(range(1_767_000_000_000, 1 << 48))
        self._ids = RandomIds(lambda: next(ticks), bytes)
        self.conversation = Conversation(
            id=self._ids.conversation(),
            title="",
            state=ConversationState.IDLE,
            bundle_id=None,
            archived=False,
            created_at=BEGINNING,
            last_activity_at=BEGINNING,
        )
        self.records: list[TurnRecord] = []
        self.events: list[Envelope] = []
        self.pages: list[TurnPage] = []
        self.round = 0
        self._pending: list[BlockDraft] = []
        self._cursor = EventCursor(1, 0)
        self._committed_cursor = ORIGIN

    @property
    def page(self) -> TurnPage:
        """What REST reads now."""
        return TurnPage(self.conversation, tuple(self.records), self._committed_cursor, None)

    def start_turn(self, text: str, attachments: Sequence[Artifact] = ()) -> TurnId:
        """A message is accepted and its turn claimed."""
        turn_id = self._ids.turn()
        turn = Turn(
            id=turn_id,
            conversation_id=self.conversation.id,
            ordinal=len(self.records) + 1,
            status=TurnStatus.RUNNING,
            attempt=0,
            request=TurnRequest(text=text, attachments=tuple(attachments)),
            created_at=BEGINNING + timedelta(minutes=len(self.records)),
            started_at=BEGINNING + timedelta(minutes=len(self.records)),
        )
        self.records.append(TurnRecord(turn, ()))
        self.round = 0
        self._set_state(ConversationState.RUNNING)
        self._emit(build_start_event(turn, tenant=TENANT, project=PROJECT))
        self.add(bodies.TurnHeaderBody(ordinal=turn.ordinal))
        self.add(bodies.PromptBody(text=text))
        self.commit()
        return turn_id

    def start_round(self) -> None:
        """Begin the next round; its block is committed with the decision."""
        self.round += 1
        self.add(bodies.RoundStartBody(limit=15))

    def stream(self, channel: str, instance: int, pieces: Iterable[str], *, artifact: str | None = None) -> str:
        """Deltas of one channel instance of this round; returns the whole text."""
        pieces = tuple(pieces)
        for index, piece in enumerate(pieces):
            self._emit(
                events.ChatDelta(
                    channel=channel,
                    instance=instance,
                    index=index,
                    text=piece,
                    completed=index == len(pieces) - 1,
                    marker="timeline_text" if channel == "notes" else channel,
                    format=format_of_path(artifact) if artifact else "markdown",
                    artifact=artifact,
                )
            )
        return "".join(pieces)

    def add(self, body: Body, *, call_id: CallId | None = None, steer: bool = False) -> None:
        """Add a block to the next commit."""
        kind = _TYPE_OF.get(type(body)) or (BlockType.USER_STEER if steer else BlockType.USER_FOLLOWUP)
        turn_id = self.records[-1].turn.id
        self._pending.append(
            BlockDraft(
                turn_id=turn_id,
                round=self.round,
                type=kind,
                ref=named_artifact_ref(turn_id, kind.value),
                body=body,
                ts=iso(BEGINNING),
                call_id=call_id,
            )
        )

    def add_call(self, tool_id: str, params: dict[str, Any], code: str | None = None) -> CallId:
        """Add a tool call to the next commit, with the program that it runs."""
        call_id = self._ids.call()
        if code is not None:
            self.add(bodies.ToolCodeBody(text=code), call_id=call_id)
        self.add(bodies.ToolCallBody(tool_id=tool_id, params=params), call_id=call_id)
        return call_id

    def commit(self) -> None:
        """Commit everything added; REST can read it from now on."""
        chain = [block for record in self.records for block in record.blocks]
        last_hash = chain[-1].hash if chain else GENESIS_HASH
        added: tuple[Block, ...] = chain_blocks(self._pending, next_seq=len(chain) + 1, last_hash=last_hash)
        self._change_last(blocks=(*self.records[-1].blocks, *added))
        self._pending.clear()
        self._committed_cursor = self._cursor
        self.pages.append(self.page)

    def answer(self, text: str, cited: Iterable[int] = ()) -> None:
        """An answer that cites these sources, published as soon as it is committed."""
        rows = [Source(sid, f"Title {sid}", f"https://a.example/{sid}") for sid in cited]
        sids = tuple(row.sid for row in rows)
        citations = build_citations(rows, sids)
        self.add(
            bodies.CompletionBody(text="raw", shown=text, followups=("More?",), sources_used=sids, citations=citations)
        )
        self.commit()
        for data in build_answer_events(self.records[-1].blocks[-1:]):
            self._emit(data)

    def show_step(self, call_id: CallId) -> None:
        """Publish a step in its committed state."""
        self._emit(build_step_event(next(step for step in self._view().steps if step.call_id == call_id)))

    def show_files(self, artifacts: Iterable[Artifact]) -> None:
        """Publish files for the person."""
        files = tuple(build_file_view(item, tenant=TENANT, project=PROJECT) for item in artifacts)
        self._emit(events.ChatFiles(files=tuple(file for file in files if file.visibility == "external")))

    def change_plan(self, name: str, labels: Sequence[str]) -> None:
        """Give a plan a new snapshot, as a block for the next commit and as an event."""
        turn_id = self.records[-1].turn.id
        plan = PlanSnapshot(
            plan_id=PlanId(name),
            steps=tuple(PlanStep(n=n, label=label) for n, label in enumerate(labels, start=1)),
            status=PlanStatus.OPEN,
            current=True,
            origin_turn_id=turn_id,
            last_turn_id=turn_id,
            snapshot_ref=plan_ref(turn_id, name),
        )
        self.add(bodies.PlanBody(plan=plan))
        self._emit(events.ChatPlan(plan=plan))

    def say(self, kind: SignalKind, text: str) -> SignalId:
        """A person sends a signal to the running turn: a row, and a hint."""
        turn_id = self.records[-1].turn.id
        signal = Signal(self._ids.signal(), turn_id, kind, text, SignalState.ACCEPTED, BEGINNING)
        self._change_last(signals=(*self.records[-1].signals, signal))
        self._emit_signal(signal, is_hint=True)
        return signal.id

    def settle_signals(self, state: SignalState) -> None:
        """Give all accepted signals their final state; applied ones are folded into the turn. Ends with a commit."""
        fresh = [signal for signal in self.records[-1].signals if signal.state is SignalState.ACCEPTED]
        for signal in fresh:
            settled = replace(signal, state=state, round=self.round if state is SignalState.APPLIED else None)
            signals = self.records[-1].signals
            self._change_last(signals=tuple(settled if item.id == settled.id else item for item in signals))
            if state is SignalState.APPLIED and signal.kind is not SignalKind.CANCEL:
                body = bodies.SignalBody(signal_id=signal.id, text=signal.text)
                self.add(body, steer=signal.kind is SignalKind.STEER)
        self.commit()
        for signal in self.records[-1].signals:
            self._emit_signal(signal)

    def lose_worker(self) -> None:
        """Drop what was not committed; a successor publishes the committed state."""
        self._pending.clear()
        self.round = self._view().rounds
        self._cursor = EventCursor(self._cursor.fence + 1, 0)
        self._emit(events.ChatRewind(turn=self._view()))

    def end_turn(self, end: Outcome | Literal["failed"]) -> None:
        """The turn's terminal commit and its event."""
        failure = problem("model", "The model failed.", 502) if end == "failed" else None
        outcome = None if end == "failed" else end
        usage = TurnUsage(input_tokens=10 * self.round, output_tokens=self.round)
        status = TurnStatus.CANCELLED if outcome is Outcome.CANCELLED else TurnStatus.COMPLETED
        turn = replace(
            self.records[-1].turn,
            status=TurnStatus.FAILED if failure else status,
            outcome=outcome,
            error=failure,
            usage=usage,
            ended_at=BEGINNING + timedelta(hours=1),
        )
        self._change_last(turn=turn)
        cut = "length" if outcome is Outcome.CUT else None
        ended = bodies.ExitBody(
            outcome=outcome, cut_reason=cut, error=failure, rounds=self.round, usage=usage, elapsed_ms=12
        )
        self.add(ended)
        self.conversation = replace(self.conversation, state=ConversationState.IDLE)
        self.commit()
        if terminal := try_build_terminal_event(self._view()):
            self._emit(terminal)
        self._set_state(ConversationState.IDLE)

    def _view(self) -> TurnView:
        return build_turn_view(self.records[-1], tenant=TENANT, project=PROJECT)

    def _change_last(self, **changes: Any) -> None:
        self.records[-1] = replace(self.records[-1], **changes)

    def _set_state(self, state: ConversationState) -> None:
        self.conversation = replace(self.conversation, state=state)
        self._emit(events.ConvStatus(state=state.value))

    def _emit_signal(self, signal: Signal, *, is_hint: bool = False) -> None:
        self._emit(build_signal_event(build_signal_view(signal, tenant=TENANT, project=PROJECT)), is_hint=is_hint)

    def _emit(self, data: AnyEvent, *, is_hint: bool = False) -> None:
        if not is_hint:
            self._cursor = EventCursor(self._cursor.fence, self._cursor.n + 1)
        envelope = Envelope(
            id=None if is_hint else str(self._cursor),
            type=data.type,
            ts=iso(BEGINNING),
            conversation_id=self.conversation.id,
            turn_id=self.records[-1].turn.id,
            round=self.round,
            data=data,
        )
        self.events.append(envelope)


def make_artifact(turn_id: TurnId, name: str, *, visibility: Literal["internal", "external"] = "external") -> Artifact:
    """A file of a turn; the same name gives the same artifact."""
    return Artifact(
        id=ArtifactId(f"art_{name}"),
        turn_id=turn_id,
        ref=output_ref(turn_id, name),
        rn=f"ef:default:default:chatbot:exec:dev:conv:{turn_id}:output:{name}",
        kind=ArtifactKind.OUTPUT,
        filename=name,
        path=f"outputs/{name}",
        mime="text/plain",
        size=len(name),
        sha256="0" * 64,
        object_key=f"conv/{name}",
        visibility=visibility,
        verdict="not scanned",
    )
