"""Turns signals into blocks and receipts: what a person said meanwhile becomes part of the turn. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from chat_proc.agent.drafting import RoundPlace
from chat_proc.agent.open_turn import Writing
from everturn.errors import Invalid
from everturn.model.artifacts import Artifact
from everturn.model.block_bodies import AttachmentTextBody, EventBody, SignalBody
from everturn.model.blocks import BlockDraft, BlockType
from everturn.model.commits import Promotion, SignalChange
from everturn.model.ids import SignalId, TurnId
from everturn.model.refs import external_ref
from everturn.model.signals import ANSWER_KINDS, ExternalEvent, Signal, SignalKind, SignalState
from everturn.timeline.inert import is_blank
from everturn.wire.events import ChatSignal
from everturn.wire.views import EventView, FileView

_log = structlog.get_logger(__name__)

ShowFiles = Callable[[Sequence[Artifact]], tuple[FileView, ...]]
Previews = Mapping[str, AttachmentTextBody]
"""The beginnings of text attachments by ref."""

_UNHEARD = ANSWER_KINDS | {SignalKind.UNKNOWN}
_BLOCK_OF = {SignalKind.FOLLOWUP: BlockType.USER_FOLLOWUP, SignalKind.STEER: BlockType.USER_STEER}


@dataclass(frozen=True, slots=True)
class Folded:
    """What signals mean for the turn: `stop` ends it with what there is, `cancel` ends it as cancelled."""

    writing: Writing
    cancel: bool = False
    stop: bool = False


def ends_work(signal: Signal) -> bool:
    """Whether the signal ends the turn: a cancel, or a steer that says nothing."""
    return signal.kind is SignalKind.CANCEL or (signal.kind is SignalKind.STEER and _is_blank(signal))


def is_heard(signal: Signal) -> bool:
    """Whether somebody waits for the agent to take it up, so that an answer without it does not end the turn."""
    return not ends_work(signal) and not signal.is_record and signal.kind not in _UNHEARD


def through_last_end(signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """The signals up to the last one that ends the turn; what was said after it is work for the next turn."""
    ends = [n for n, signal in enumerate(signals, start=1) if ends_work(signal)]
    return tuple(signals[: ends[-1]]) if ends else ()


def fold_signals(
    signals: Sequence[Signal], place: RoundPlace, show_files: ShowFiles, previews: Previews | None = None
) -> Folded:
    """Blocks for what has words, and a receipt `applied` for each; `rejected` for one that no block can be made of."""
    drafts: list[BlockDraft] = []
    changes: list[SignalChange] = []
    after: list[tuple[ChatSignal, int | None]] = []
    for signal in signals:
        state = SignalState.APPLIED
        try:
            drafts += _draft(signal, place, previews or {})
        except Invalid as error:
            # Whoever accepted it knew of something that this worker does not; the turn must not die of it.
            _log.error("signal_rejected", signal_id=signal.id, error=str(error))
            state = SignalState.REJECTED
        changes.append(SignalChange(signal.id, state, place.round))
        after.append((_receipt(signal, state, show_files, place.round), place.round))
    return Folded(
        writing=Writing(drafts=tuple(drafts), signals=tuple(changes), after=tuple(after)),
        cancel=any(signal.kind is SignalKind.CANCEL for signal in signals),
        stop=any(ends_work(signal) for signal in signals),
    )


@dataclass(frozen=True, slots=True)
class Leftover:
    """What becomes of signals that an ended turn has no room for: `promote` names those of the next turn,
    `writing` has the receipts of all, records the events that ask for nothing, and settles the others as expired."""

    writing: Writing
    promote: Promotion | None


def settle_leftover(
    signals: Sequence[Signal], place: RoundPlace, next_turn_id: Callable[[], TurnId], show_files: ShowFiles
) -> Leftover:
    """What wants to be taken up becomes one next turn together, in order; cancels and blank steers have nothing to do.

    An event that is only to be recorded stands on the timeline of the turn that ends, where the next one sees it.
    """
    # An unknown signal is rejected, as it is within the turn: its sender learns that nothing came of it.
    to_fold = [signal for signal in signals if signal.is_record or signal.kind is SignalKind.UNKNOWN]
    recorded = fold_signals(to_fold, place, show_files).writing
    late = [signal for signal in signals if is_heard(signal)]
    # An answer that nobody waits for any more has nothing left to settle.
    expired = [signal for signal in signals if ends_work(signal) or signal.kind in ANSWER_KINDS]
    promote = None
    if late:
        text = "\n\n".join(signal.text for signal in late if signal.text and signal.event is None)
        promote = Promotion(tuple(signal.id for signal in late), next_turn_id(), text)
    becomes = promote.turn_id if promote else None
    promoted = [(_receipt(signal, SignalState.PROMOTED, show_files, None, becomes), None) for signal in late]
    ended = [(_receipt(signal, SignalState.EXPIRED, show_files, None), None) for signal in expired]
    changes = tuple(SignalChange(signal.id, SignalState.EXPIRED) for signal in expired)
    return Leftover(recorded.plus(Writing(signals=changes, after=(*promoted, *ended))), promote)


def build_event_body(
    signal_id: SignalId, text: str, event: ExternalEvent, attachments: Sequence[Artifact]
) -> EventBody:
    """The body of an `event.external` block."""
    return EventBody(
        signal_id=signal_id,
        kind=event.kind,
        text=text,
        payload=event.payload,
        reactive=event.reactive,
        credit=event.iteration_credit if event.reactive else 0,
        attachments=tuple(attachments),
    )


def _is_blank(signal: Signal) -> bool:
    return is_blank(signal.text) and not signal.attachments


def _draft(signal: Signal, place: RoundPlace, previews: Previews) -> Iterable[BlockDraft]:
    """Its block, and one for the beginning of each text file it brings. Raises Invalid."""
    if signal.event is not None:
        ref = external_ref(place.turn_id, signal.event.kind, signal.id)
        body = build_event_body(signal.id, signal.text, signal.event, signal.attachments)
        yield place.draft(BlockType.EXTERNAL_EVENT, ref, body)
    elif signal.kind in _BLOCK_OF and not _is_blank(signal):
        ref = external_ref(place.turn_id, signal.kind.value, signal.id)
        spoken = SignalBody(signal_id=signal.id, text=signal.text, attachments=signal.attachments)
        yield place.draft(_BLOCK_OF[signal.kind], ref, spoken)
    elif signal.kind is SignalKind.EVENT:
        raise Invalid("An event of no kind.")
    elif signal.kind is SignalKind.UNKNOWN:
        raise Invalid("A signal that only a newer version understands.")
    for artifact in signal.attachments:
        if (preview := previews.get(artifact.ref)) is not None:
            yield place.draft(BlockType.ATTACHMENT_TEXT, artifact.ref, preview)


def _receipt(
    signal: Signal,
    state: SignalState,
    show_files: ShowFiles,
    round_number: int | None,
    promoted_to: TurnId | None = None,
) -> ChatSignal:
    event = signal.event
    return ChatSignal(
        signal_id=signal.id,
        kind=signal.kind.value,
        state=state.value,
        text=signal.text,
        attachments=show_files(signal.attachments),
        round=round_number,
        promoted_to=promoted_to,
        event=EventView(kind=event.kind, reactive=event.reactive) if event else None,
        approval_id=signal.approval_id,
    )
