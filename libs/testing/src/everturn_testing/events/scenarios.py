"""A simulated worker in memory: it commits blocks and emits events in the order of the real one, without I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from everturn.conversations.model import Conversation, ConversationState
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
from everturn.events.views import TurnView
from everturn.files.model import Artifact, ArtifactKind
from everturn.timeline.blocks import (
    GENESIS_HASH,
    Block,
    BlockDraft,
    BlockType,
    Body,
    CompletionBody,
    ExitBody,
    PlanBody,
    PromptBody,
    RoundStartBody,
    SignalBody,
    ToolCallBody,
    ToolCodeBody,
    TurnHeaderBody,
    chain_blocks,
)
from everturn.timeline.plans import PlanSnapshot, PlanStatus, PlanStep
from everturn.timeline.sources import Source, build_citations
from everturn.timeline.turns import Outcome, Signal, SignalKind, SignalState, Turn, TurnRequest, TurnStatus, TurnUsage

TENANT, PROJECT = "default", "default"
BEGINNING = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_TYPE_OF = {kind.traits.body: kind for kind in BlockType if kind.traits.body is not SignalBody}


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
        self.emit(build_start_event(turn, tenant=TENANT, project=PROJECT))
        self.add(TurnHeaderBody(ordinal=turn.ordinal))
        self.add(PromptBody(text=text))
        self.commit()
        return turn_id

    def start_round(self) -> None:
        """Begin the next round; its block is committed with the decision."""
        self.round += 1
        self.add(RoundStartBody(limit=15))

    def stream(self, channel: str, instance: int, pieces: Iterable[str], *, artifact: str | None = None) -> str:
        """Deltas of one channel instance of this round; returns the whole text."""
        pieces = tuple(pieces)
        for index, piece in enumerate(pieces):
            self.emit(
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
            self.add(ToolCodeBody(text=code), call_id=call_id)
        self.add(ToolCallBody(tool_id=tool_id, params=params), call_id=call_id)
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
        self.add(CompletionBody(text="raw", shown=text, followups=("More?",), sources_used=sids, citations=citations))
        self.commit()
        for data in build_answer_events(self.records[-1].blocks[-1:]):
            self.emit(data)

    def show_step(self, call_id: CallId) -> None:
        """Publish a step in its committed state."""
        self.emit(build_step_event(next(step for step in self._view().steps if step.call_id == call_id)))

    def show_files(self, artifacts: Iterable[Artifact]) -> None:
        """Publish files for the person."""
        files = tuple(build_file_view(item, tenant=TENANT, project=PROJECT) for item in artifacts)
        self.emit(events.ChatFiles(files=tuple(file for file in files if file.visibility == "external")))

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
        self.add(PlanBody(plan=plan))
        self.emit(events.ChatPlan(plan=plan))

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
                body = SignalBody(signal_id=signal.id, text=signal.text)
                self.add(body, steer=signal.kind is SignalKind.STEER)
        self.commit()
        for signal in self.records[-1].signals:
            self._emit_signal(signal)

    def emit(self, data: AnyEvent, *, is_hint: bool = False) -> None:
        """Publish an event. A hint gets no id."""
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

    def lose_worker(self) -> None:
        """Drop what was not committed; a successor publishes the committed state."""
        self._pending.clear()
        self.round = self._view().rounds
        self._cursor = EventCursor(self._cursor.fence + 1, 0)
        self.emit(events.ChatRewind(turn=self._view()))

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
        ended = ExitBody(outcome=outcome, cut_reason=cut, error=failure, rounds=self.round, usage=usage, elapsed_ms=12)
        self.add(ended)
        self.conversation = replace(self.conversation, state=ConversationState.IDLE)
        self.commit()
        if terminal := try_build_terminal_event(self._view()):
            self.emit(terminal)
        self._set_state(ConversationState.IDLE)

    def _view(self) -> TurnView:
        return build_turn_view(self.records[-1], tenant=TENANT, project=PROJECT)

    def _change_last(self, **changes: Any) -> None:
        self.records[-1] = replace(self.records[-1], **changes)

    def _set_state(self, state: ConversationState) -> None:
        self.conversation = replace(self.conversation, state=state)
        self.emit(events.ConvStatus(state=state.value))

    def _emit_signal(self, signal: Signal, *, is_hint: bool = False) -> None:
        self.emit(build_signal_event(build_signal_view(signal, tenant=TENANT, project=PROJECT)), is_hint=is_hint)


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
