"""The effect of signals on a running turn: they are folded in when a round starts, they can defer an answer that was
written without them, and a steer with text leaves two rounds to finish. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import structlog

from chat_proc.agent.drafting import Repair, RoundContext, UseTool, Verdict
from chat_proc.catalog.tool import ToolSpec
from chat_proc.turn.leased import CommitContent, TurnEnd
from everturn.core.errors import Invalid
from everturn.core.ids import SignalId, TurnId
from everturn.core.refs import external_ref, round_ref
from everturn.events.model import ChatSignal
from everturn.events.turn_view import have_same_text
from everturn.events.views import EventView, FileView
from everturn.files.model import Artifact
from everturn.timeline.blocks import (
    AttachmentTextBody,
    BlockDraft,
    BlockType,
    CompletionBody,
    DeferralBody,
    EventBody,
    SignalBody,
)
from everturn.timeline.inert import is_blank
from everturn.timeline.progress import TurnProgress
from everturn.timeline.turns import ANSWER_KINDS, ExternalEvent, Signal, SignalKind, SignalState
from everturn.turns.model import Promotion, SignalChange

_log = structlog.get_logger(__name__)

SIMILARITY = 0.9
"""Share of common text from which two answers count as the same."""
MAX_CHARS_BY_LETTER = 200
"""Up to this length answers are compared by letter, longer ones by word: the cost is quadratic. The worst texts of this
size take about 10 ms."""
MAX_WORDS = 4_000
"""Words compared at the start of a longer answer, by how often each occurs."""
MAX_ORDERED_WORDS = 200
"""The first words, whose order is compared as well."""
MAX_INBOX_TRIES = 20
"""How often signals may change while they are read and committed before the turn is left to another worker."""
REASON = "external_events_arrived"
STOP_WITHDRAWN = "stop_withdrawn"

FINALIZE_TOOLS = ("react.write", "react.patch", "react.plan", "react.hide")
"""Tools that finish work; all others would begin new work."""

ShowFiles = Callable[[Sequence[Artifact]], tuple[FileView, ...]]
Previews = Mapping[str, AttachmentTextBody]
"""The beginnings of text attachments by ref."""

_NEED_NO_RESPONSE = ANSWER_KINDS | {SignalKind.UNKNOWN}
_BLOCK_OF = {SignalKind.FOLLOWUP: BlockType.USER_FOLLOWUP, SignalKind.STEER: BlockType.USER_STEER}


def draft_deferral(context: RoundContext, count: int) -> BlockDraft:
    """Explains to the model why its answer does not end the turn: `count` messages arrived first."""
    arrived = "A message" if count == 1 else f"{count} messages"
    body = DeferralBody(
        reason=REASON,
        text=f"{arrived} arrived before this answer ended the turn. The user has seen the answer, and the turn "
        "continues: the next round shows the new messages. Handle them, then give an answer that covers them. If they "
        "change nothing, give the same answer again.",
    )
    return context.draft(BlockType.DEFERRAL, round_ref(context.turn_id, context.round, "deferral"), body)


def try_draft_withdrawn_stop(context: RoundContext, progress: TurnProgress) -> BlockDraft | None:
    """The deferral of an answer that a stop interrupted in the round of `context`, the sealed one, if that stop was
    withdrawn.

    It is derived from the blocks, so any worker that resumes the turn finds it, whichever saw the stop change.
    """
    if not progress.ends_with_answer:
        return None
    body = DeferralBody(
        reason=STOP_WITHDRAWN,
        text="The user stopped this answer, then withdrew the stop. The user has seen this part of it, and the turn "
        "continues: give the whole answer.",
    )
    return context.draft(BlockType.DEFERRAL, round_ref(context.turn_id, context.round, "deferral"), body)


def repeats_deferred(progress: TurnProgress, end: TurnEnd) -> bool:
    """Whether this end repeats the answer that was deferred last: another call would only repeat it again."""
    deferred, given = progress.deferred, _given_answer(end)
    return deferred is not None and given is not None and is_same_answer(deferred.text, given.text)


def shows_deferred_again(progress: TurnProgress, end: TurnEnd) -> bool:
    """Whether clients that saw both answers need a rewind, because the answers count as one."""
    deferred, given = progress.deferred, _given_answer(end)
    return deferred is not None and given is not None and have_same_text(_as_shown(deferred), _as_shown(given))


def is_same_answer(one: str, other: str) -> bool:
    """Whether the answers are equal except for whitespace and case, or share at least `SIMILARITY` of their characters
    in the same order. Longer answers have to share this part of their words, and the first words in the same order."""
    if have_same_text(one, other):
        return True
    one, other = " ".join(one.split()).casefold(), " ".join(other.split()).casefold()
    if 2 * min(len(one), len(other)) < SIMILARITY * (len(one) + len(other)):
        return False
    if max(len(one), len(other)) <= MAX_CHARS_BY_LETTER:
        return _is_similar(SequenceMatcher(None, one, other, autojunk=False))
    words, others = one.split(None, MAX_WORDS)[:MAX_WORDS], other.split(None, MAX_WORDS)[:MAX_WORDS]
    if SequenceMatcher(None, words, others).quick_ratio() < SIMILARITY:
        return False
    return _is_similar(SequenceMatcher(None, words[:MAX_ORDERED_WORDS], others[:MAX_ORDERED_WORDS]))


def _is_similar(matcher: "SequenceMatcher[str]") -> bool:
    return matcher.quick_ratio() >= SIMILARITY and matcher.ratio() >= SIMILARITY


def _given_answer(end: TurnEnd) -> CompletionBody | None:
    return next((draft.body for draft in end.content.drafts if isinstance(draft.body, CompletionBody)), None)


def _as_shown(body: CompletionBody) -> str:
    return body.text if body.shown is None else body.shown


def finalize_tools(offered: Iterable[ToolSpec]) -> tuple[str, ...]:
    """The tools of FINALIZE_TOOLS that this turn has. They remain allowed in the last rounds of a turn after a steer
    with text."""
    names = {spec.tool_id for spec in offered}
    return tuple(name for name in FINALIZE_TOOLS if name in names)


def check_finalizing(verdict: Verdict, allowed: tuple[str, ...]) -> Verdict:
    """The verdict on a decision of such a round: a tool that begins new work becomes a notice that names the allowed
    ones."""
    if isinstance(verdict, Repair):
        return verdict
    late = [use for use in verdict.calls if use.spec.tool_id not in allowed]
    refused = [_refuse(use, allowed) for use in late]
    items = tuple(item for item in verdict.items if item not in late)
    if not items and refused:
        return refused[0]
    return replace(verdict, items=items, refused=(*verdict.refused, *refused))


def _refuse(use: UseTool, allowed: tuple[str, ...]) -> Repair:
    return Repair(
        "not_while_finalizing",
        f"{use.spec.tool_id} was not called: the user has steered the turn, so only tools that complete the work may be"
        f" called now. Allowed tools: {', '.join(allowed) or 'none'}. Finish the turn as the user's last message asks.",
    )


@dataclass(frozen=True, slots=True)
class Folded:
    """The effect of signals on the turn: `stop` ends it with what it has so far, `cancel` ends it as cancelled."""

    content: CommitContent
    cancel: bool = False
    stop: bool = False


def ends_work(signal: Signal) -> bool:
    """Whether the signal ends the turn: a cancel, or a blank steer."""
    return signal.kind is SignalKind.CANCEL or (signal.kind is SignalKind.STEER and _is_blank(signal))


def needs_response(signal: Signal) -> bool:
    """Whether the agent has to respond to it, so that an answer without it does not end the turn."""
    return not ends_work(signal) and not signal.is_record and signal.kind not in _NEED_NO_RESPONSE


def through_last_end(signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """The signals up to the last one that ends the turn; later ones are work for the next turn."""
    ends = [n for n, signal in enumerate(signals, start=1) if ends_work(signal)]
    return tuple(signals[: ends[-1]]) if ends else ()


def fold_signals(
    signals: Sequence[Signal], context: RoundContext, show_files: ShowFiles, previews: Previews | None = None
) -> Folded:
    """Build blocks for signals with text, and a receipt for each: `applied`, or `rejected` if no block can be built."""
    drafts: list[BlockDraft] = []
    changes: list[SignalChange] = []
    after: list[tuple[ChatSignal, int | None]] = []
    for signal in signals:
        state = SignalState.APPLIED
        try:
            drafts += _draft(signal, context, previews or {})
        except Invalid as error:
            # It was accepted by a version with features that this worker lacks; the turn must not fail because of it.
            _log.error("Rejected a signal", signal_id=signal.id, error=str(error))
            state = SignalState.REJECTED
        changes.append(SignalChange(signal.id, state, context.round))
        after.append((_receipt(signal, state, show_files, context.round), context.round))
    return Folded(
        content=CommitContent(drafts=tuple(drafts), signals=tuple(changes), after=tuple(after)),
        cancel=any(signal.kind is SignalKind.CANCEL for signal in signals),
        stop=any(ends_work(signal) for signal in signals),
    )


@dataclass(frozen=True, slots=True)
class LateSignals:
    """Signals that arrived too late for an ended turn: `promote` names those of the next turn; `content` has the
    receipts of all, records the events that need no response, and settles the others as expired."""

    content: CommitContent
    promote: Promotion | None


def settle_late_signals(
    signals: Sequence[Signal], context: RoundContext, next_turn_id: Callable[[], TurnId], show_files: ShowFiles
) -> LateSignals:
    """Promote signals that need a response to one next turn, in order; cancels and blank steers expire.

    An event that is only to be recorded is put on the timeline of the ending turn, where the next one sees it.
    """
    # An unknown signal is rejected, as within the turn, so its sender learns that it had no effect.
    to_fold = [signal for signal in signals if signal.is_record or signal.kind is SignalKind.UNKNOWN]
    recorded = fold_signals(to_fold, context, show_files).content
    late = [signal for signal in signals if needs_response(signal)]
    # An answer to a question that is no longer open expires.
    expired = [signal for signal in signals if ends_work(signal) or signal.kind in ANSWER_KINDS]
    promote = None
    if late:
        text = "\n\n".join(signal.text for signal in late if signal.text and signal.event is None)
        promote = Promotion(tuple(signal.id for signal in late), next_turn_id(), text)
    becomes = promote.turn_id if promote else None
    promoted = [(_receipt(signal, SignalState.PROMOTED, show_files, None, becomes), None) for signal in late]
    ended = [(_receipt(signal, SignalState.EXPIRED, show_files, None), None) for signal in expired]
    changes = tuple(SignalChange(signal.id, SignalState.EXPIRED) for signal in expired)
    return LateSignals(recorded.plus(CommitContent(signals=changes, after=(*promoted, *ended))), promote)


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


def _draft(signal: Signal, context: RoundContext, previews: Previews) -> Iterable[BlockDraft]:
    """The signal's block, and one for the beginning of each text file it brings. Raises Invalid."""
    if signal.event is not None:
        ref = external_ref(context.turn_id, signal.event.kind, signal.id)
        body = build_event_body(signal.id, signal.text, signal.event, signal.attachments)
        yield context.draft(BlockType.EXTERNAL_EVENT, ref, body)
    elif signal.kind in _BLOCK_OF and not _is_blank(signal):
        ref = external_ref(context.turn_id, signal.kind.value, signal.id)
        spoken = SignalBody(signal_id=signal.id, text=signal.text, attachments=signal.attachments)
        yield context.draft(_BLOCK_OF[signal.kind], ref, spoken)
    elif signal.kind is SignalKind.EVENT:
        raise Invalid("The event has no kind.")
    elif signal.kind is SignalKind.UNKNOWN:
        raise Invalid("This signal is from a newer version and is not supported.")
    for artifact in signal.attachments:
        if (preview := previews.get(artifact.ref)) is not None:
            yield context.draft(BlockType.ATTACHMENT_TEXT, artifact.ref, preview)


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
