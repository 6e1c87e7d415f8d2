"""Folding the event stream into the state a client sees. From any starting point the result equals what REST reads."""

from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar, assert_never

from everturn.events import model as events
from everturn.events.cursor import ORIGIN, try_parse_cursor
from everturn.events.model import Envelope
from everturn.events.turn_view import text_order, withdraw_pending
from everturn.events.views import (
    ApprovalView,
    CitationView,
    FileView,
    SignalView,
    StateView,
    StepRoundView,
    StepView,
    TextView,
    TurnView,
)

_OPEN_STATES = ("accepted", "queued")
_Item = TypeVar("_Item")
_text_key = attrgetter("round", "channel", "instance")
_TurnEvent = (
    events.ChatStep
    | events.ChatDelta
    | events.ChatPlan
    | events.ChatFiles
    | events.ChatCitations
    | events.ChatFollowups
    | events.ChatSignal
    | events.ChatApproval
    | events.ChatPhase
    | events.ChatComplete
    | events.ChatError
)


def fold_event(state: StateView, envelope: Envelope) -> StateView:
    """The state after one event. Pure and total.

    An event whose id the state already includes changes nothing, so a stream can overlap the state.
    """
    if envelope.conversation_id != state.conversation.conversation_id:
        return state
    if isinstance(envelope.data, events.StreamSnapshot):
        return envelope.data.state
    cursor = try_parse_cursor(envelope.id) if envelope.id else None
    if cursor is None:
        return _fold(state, envelope)
    if cursor <= (try_parse_cursor(state.cursor) or ORIGIN):
        return state
    return _fold(state, envelope).model_copy(update={"cursor": str(cursor)})


def _fold(state: StateView, envelope: Envelope) -> StateView:
    data = envelope.data
    match data:
        case (
            events.Ready()
            | events.StreamSnapshot()
            | events.StreamGap()
            | events.ServerShutdown()
            | events.ChatCompaction()
            | events.ChatPhase(step_id=None)
            | events.ChatTool()
        ):
            return state
        case events.ConvTitle(title=title):
            return state.model_copy(update={"conversation": state.conversation.model_copy(update={"title": title})})
        case events.ConvStatus():
            return _fold_status(state, data, is_hint=envelope.id is None)
        case events.ChatStart():
            return _put_turn(state, _start_turn(_find_turn(state, data.turn_id), data))
        case events.ChatRewind(turn=turn):
            return _put_turn(state, _keep_receipts(_find_turn(state, turn.turn_id), turn))
        case _:
            turn = _find_turn(state, envelope.turn_id)
            return state if turn is None else _put_turn(state, _fold_into_turn(turn, data, envelope.round or 0))


def _fold_into_turn(turn: TurnView, data: _TurnEvent, round_number: int) -> TurnView:
    if is_open(turn):
        turn = turn.model_copy(update={"rounds": max(turn.rounds, round_number)})
    match data:
        case events.ChatDelta():
            return _append_text(turn, data, round_number)
        case events.ChatStep():
            return turn.model_copy(update={"steps": _put_step(turn.steps, data, round_number)})
        case events.ChatPlan(plan=plan):
            return turn.model_copy(update={"plans": _put(turn.plans, plan, attrgetter("plan_id"))})
        case events.ChatFiles(files=files):
            return turn.model_copy(update={"files": _put_files(turn.files, files)})
        case events.ChatCitations(sources=sources):
            return turn.model_copy(update={"citations": _put_citations(turn.citations, sources)})
        case events.ChatFollowups(items=items):
            return turn.model_copy(update={"followups": items})
        case events.ChatSignal():
            return turn.model_copy(update={"signals": _put_signal(turn.signals, data)})
        case events.ChatApproval():
            return turn.model_copy(update={"approvals": _put_approval(turn.approvals, data, round_number)})
        case events.ChatPhase():
            return turn.model_copy(update={"step_rounds": _put_step_round(turn.step_rounds, data, round_number)})
        case events.ChatComplete() | events.ChatError():
            return _end_turn(turn, data)
        case _:
            assert_never(data)


def is_open(turn: TurnView) -> bool:
    """Whether the turn has not ended."""
    return turn.status in ("queued", "running", "waiting")


def _fold_status(state: StateView, data: events.ConvStatus, *, is_hint: bool) -> StateView:
    turn = _find_turn(state, data.turn_id)
    # A hint is read from the row and can arrive after the events of the turn that it reports as queued or running.
    if is_hint and turn and (not is_open(turn) or (data.state == "queued" and turn.status != "queued")):
        return state
    if not is_hint and turn and is_open(turn) and data.state in ("queued", "running", "waiting"):
        state = _put_turn(state, turn.model_copy(update={"status": data.state}))
    return state.model_copy(update={"conversation": state.conversation.model_copy(update={"state": data.state})})


def _start_turn(turn: TurnView | None, data: events.ChatStart) -> TurnView:
    message = {
        "text": data.text,
        "attachments": data.attachments,
        "created_at": data.created_at,
        "ordinal": data.ordinal,
    }
    if turn is None:
        turn = TurnView(turn_id=data.turn_id, ordinal=data.ordinal, status="running", text=data.text)
    return turn.model_copy(update={**message, "status": "running"} if is_open(turn) else message)


def _end_turn(turn: TurnView, data: events.ChatComplete | events.ChatError) -> TurnView:
    if not is_open(turn):
        return turn
    turn = turn.model_copy(update={"approvals": withdraw_pending(turn.approvals)})
    ended = {"rounds": data.rounds, "sealed_round": data.rounds, "usage": data.usage, "elapsed_ms": data.elapsed_ms}
    match data:
        case events.ChatError(problem=problem):
            return turn.model_copy(update={**ended, "status": "failed", "error": problem})
        case events.ChatComplete():
            completed = {
                "status": "cancelled" if data.outcome == "cancelled" else "completed",
                "outcome": data.outcome,
                "cut_reason": data.cut_reason,
                "answer": data.answer,
                "followups": data.followups,
                "sources_used": data.sources_used,
            }
            return turn.model_copy(update={**ended, **completed})
        case _:
            assert_never(data)


def _append_text(turn: TurnView, delta: events.ChatDelta, round_number: int) -> TurnView:
    # Committed rounds are complete; a delta of one was published after the commit that contains its text.
    if round_number <= turn.sealed_round or not delta.text:
        return turn
    key = (round_number, delta.channel, delta.instance)
    present = next((text for text in turn.texts if _text_key(text) == key), None)
    if present:
        grown = present.model_copy(update={"text": present.text + delta.text})
    else:
        grown = TextView(
            round=round_number,
            channel=delta.channel,
            instance=delta.instance,
            marker=delta.marker,
            format=delta.format,
            text=delta.text,
            artifact=delta.artifact,
        )
    return turn.model_copy(update={"texts": tuple(sorted(_put(turn.texts, grown, _text_key), key=text_order))})


def _put_step(steps: tuple[StepView, ...], data: events.ChatStep, round_number: int) -> tuple[StepView, ...]:
    fields = data.model_dump(exclude={"type"}, exclude_none=True)
    present = next((step for step in steps if step.step == data.step), None)
    if present is None:
        return (*steps, StepView(round=round_number, **fields))
    if data.status == "started" and present.status != "started":
        return steps
    return _put(steps, present.model_copy(update=fields), attrgetter("step"))


def _put_step_round(
    rounds: tuple[StepRoundView, ...], data: events.ChatPhase, round_number: int
) -> tuple[StepRoundView, ...]:
    """A round of a plan's step begins with `model_called` and is committed with `model_thought`."""
    if data.step_id is None or data.phase not in ("model_called", "model_thought"):
        return rounds
    seen = StepRoundView(round=round_number, step_id=data.step_id, sealed=data.phase == "model_thought")
    return tuple(sorted(_put(rounds, seen, attrgetter("round")), key=attrgetter("round")))


def _put_files(files: tuple[FileView, ...], added: tuple[FileView, ...]) -> tuple[FileView, ...]:
    for file in added:
        if file.visibility == "external":
            files = _put(files, file, attrgetter("artifact_id"))
    return files


def _put_citations(present: tuple[CitationView, ...], added: tuple[CitationView, ...]) -> tuple[CitationView, ...]:
    by_sid = {citation.sid: citation for citation in (*present, *added)}
    return tuple(by_sid[sid] for sid in sorted(by_sid))


def _keep_receipts(present: TurnView | None, rewound: TurnView) -> TurnView:
    """A worker reports the signals it has read; hints have reported those that arrived or were settled since."""
    if present is None:
        return rewound
    reported = {signal.signal_id: signal for signal in rewound.signals}
    newer = [
        signal
        for signal in present.signals
        if signal.signal_id not in reported or reported[signal.signal_id].state in _OPEN_STATES
    ]
    kept = {**reported, **{signal.signal_id: signal for signal in newer}}
    return rewound.model_copy(update={"signals": tuple(sorted(kept.values(), key=attrgetter("signal_id")))})


def _put_signal(signals: tuple[SignalView, ...], data: events.ChatSignal) -> tuple[SignalView, ...]:
    present = next((signal for signal in signals if signal.signal_id == data.signal_id), None)
    # Only `accepted` can change, and a hint with that state can arrive after the event that settled the signal.
    if present and present.state not in _OPEN_STATES and data.state in _OPEN_STATES:
        return signals
    receipt = SignalView(
        signal_id=data.signal_id,
        kind=data.kind,
        state=data.state,
        text=data.text,
        attachments=data.attachments,
        round=data.round,
        promoted_to=data.promoted_to,
        event=data.event,
        approval_id=data.approval_id,
    )
    return tuple(sorted(_put(signals, receipt, attrgetter("signal_id")), key=attrgetter("signal_id")))


def _put_approval(
    approvals: tuple[ApprovalView, ...], data: events.ChatApproval, round_number: int
) -> tuple[ApprovalView, ...]:
    present = next((each for each in approvals if each.approval_id == data.approval_id), None)
    if present and present.state != "pending":
        return approvals
    approval = ApprovalView(round=round_number, **data.model_dump(exclude={"type"}))
    return _put(approvals, approval, attrgetter("approval_id"))


def _find_turn(state: StateView, turn_id: str | None) -> TurnView | None:
    return next((turn for turn in reversed(state.turns) if turn.turn_id == turn_id), None)


def _put_turn(state: StateView, turn: TurnView) -> StateView:
    return state.model_copy(update={"turns": _put(state.turns, turn, attrgetter("turn_id"))})


def _put(items: tuple[_Item, ...], item: _Item, key: Callable[[_Item], object]) -> tuple[_Item, ...]:
    """Put `item` in the place of the one with its key, or at the end."""
    wanted = key(item)
    if all(key(present) != wanted for present in items):
        return (*items, item)
    return tuple(item if key(present) == wanted else present for present in items)
