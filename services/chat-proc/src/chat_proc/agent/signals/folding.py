"""Turns signals into blocks and receipts: what a person said meanwhile becomes part of the turn. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chat_proc.agent.drafting import RoundPlace
from chat_proc.agent.open_turn import Writing
from everturn.model.artifacts import Artifact
from everturn.model.block_bodies import SignalBody
from everturn.model.blocks import BlockDraft, BlockType
from everturn.model.commits import Promotion, SignalChange
from everturn.model.ids import TurnId
from everturn.model.refs import external_ref
from everturn.model.signals import Signal, SignalKind, SignalState
from everturn.wire.events import ChatSignal
from everturn.wire.views import FileView

ShowFiles = Callable[[Sequence[Artifact]], tuple[FileView, ...]]

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


def through_last_end(signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """The signals up to the last one that ends the turn; what was said after it is work for the next turn."""
    ends = [n for n, signal in enumerate(signals, start=1) if ends_work(signal)]
    return tuple(signals[: ends[-1]]) if ends else ()


def fold_signals(signals: Sequence[Signal], place: RoundPlace, show_files: ShowFiles) -> Folded:
    """Blocks for what has words, and a receipt `applied` for each."""
    spoken = [signal for signal in signals if signal.kind in _BLOCK_OF and not _is_blank(signal)]
    return Folded(
        writing=Writing(
            drafts=tuple(_draft(signal, place) for signal in spoken),
            signals=tuple(SignalChange(signal.id, SignalState.APPLIED, place.round) for signal in signals),
            after=tuple(
                (_receipt(signal, SignalState.APPLIED, show_files, place.round), place.round) for signal in signals
            ),
        ),
        cancel=any(signal.kind is SignalKind.CANCEL for signal in signals),
        stop=any(ends_work(signal) for signal in signals),
    )


@dataclass(frozen=True, slots=True)
class Leftover:
    """What becomes of signals that an ended turn has no room for: `promote` names those of the next turn,
    `writing` has the receipts of all and settles the others as expired."""

    writing: Writing
    promote: Promotion | None


def settle_leftover(signals: Sequence[Signal], next_turn_id: Callable[[], TurnId], show_files: ShowFiles) -> Leftover:
    """Signals with words become one next turn together, in order; cancels and blank steers have nothing left to do."""
    spoken = [signal for signal in signals if signal.kind in _BLOCK_OF and not _is_blank(signal)]
    expired = [signal for signal in signals if signal not in spoken]
    promote = None
    if spoken:
        text = "\n\n".join(signal.text for signal in spoken if signal.text)
        promote = Promotion(tuple(signal.id for signal in spoken), next_turn_id(), text)
    becomes = promote.turn_id if promote else None
    promoted = [(_receipt(signal, SignalState.PROMOTED, show_files, None, becomes), None) for signal in spoken]
    ended = [(_receipt(signal, SignalState.EXPIRED, show_files, None), None) for signal in expired]
    changes = tuple(SignalChange(signal.id, SignalState.EXPIRED) for signal in expired)
    return Leftover(Writing(signals=changes, after=(*promoted, *ended)), promote)


def _is_blank(signal: Signal) -> bool:
    return not signal.text.strip() and not signal.attachments


def _draft(signal: Signal, place: RoundPlace) -> BlockDraft:
    body = SignalBody(signal_id=signal.id, text=signal.text, attachments=signal.attachments)
    return place.draft(_BLOCK_OF[signal.kind], external_ref(place.turn_id, signal.kind.value, signal.id), body)


def _receipt(
    signal: Signal,
    state: SignalState,
    show_files: ShowFiles,
    round_number: int | None,
    promoted_to: TurnId | None = None,
) -> ChatSignal:
    return ChatSignal(
        signal_id=signal.id,
        kind=signal.kind.value,
        state=state.value,
        text=signal.text,
        attachments=show_files(signal.attachments),
        round=round_number,
        promoted_to=promoted_to,
    )
