"""The blocks with which a turn begins."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.kit import BundleKit
from chat_proc.agent.signal_folding import ShowFiles, fold_signals
from chat_proc.timeline.pruning import PrunePolicy, try_draft_prune
from chat_proc.turn.leased import CommitContent
from everturn.core.refs import prompt_ref, round_ref
from everturn.feedback.model import Feedback
from everturn.models.port import CodecName
from everturn.timeline.blocks import (
    AttachmentBody,
    AttachmentTextBody,
    Block,
    BlockDraft,
    BlockType,
    Body,
    FeedbackBody,
    PromptBody,
    TurnHeaderBody,
)
from everturn.timeline.turns import RequestEvent, Signal, SignalKind, SignalState, Turn


def draft_opening(
    turn: Turn,
    feedback: Sequence[Feedback],
    previews: Mapping[str, AttachmentTextBody],
    now: str,
    show_files: ShowFiles,
    *,
    codec: CodecName = "channels",
    tools: tuple[str, ...] | None = None,
    bundle: BundleKit | None = None,
    skills_revision: int = 0,
) -> CommitContent:
    """All blocks before the first round: the request, then the events that the turn begins with. `tools` are those that
    were chosen for the turn, `bundle` and `skills_revision` the versions with which it begins."""
    request = turn.request
    recorded = None if codec == "channels" else codec
    bundle_id, digest = (None, None) if bundle is None else (bundle.bundle_id, bundle.digest)
    header = TurnHeaderBody(
        ordinal=turn.ordinal,
        bundle_id=bundle_id or request.bundle_id,
        bundle_digest=digest,
        codec=recorded,
        tools=tools,
        skills_revision=skills_revision or None,
    )
    drafts = [_draft(turn, BlockType.TURN_HEADER, "header", header, now)]
    for n, item in enumerate(feedback):
        drafts.append(_draft(turn, BlockType.FEEDBACK, f"feedback.{n}", _feedback_body(item), now))
    if request.text or not request.events:
        prompt = PromptBody(text=request.text)
        drafts.append(BlockDraft(turn.id, 0, BlockType.USER_PROMPT, prompt_ref(turn.id), prompt, now))
    for artifact in request.attachments:
        drafts.append(
            BlockDraft(turn.id, 0, BlockType.ATTACHMENT_META, artifact.ref, AttachmentBody(artifact=artifact), now)
        )
        if (preview := previews.get(artifact.ref)) is not None:
            drafts.append(BlockDraft(turn.id, 0, BlockType.ATTACHMENT_TEXT, artifact.ref, preview, now))
    context = RoundContext(turn.id, 0, 0, now)
    events = fold_signals([_as_signal(turn, event) for event in request.events], context, show_files, previews).content
    # No rows of these need settling: they are part of the request.
    return CommitContent(drafts=(*drafts, *events.drafts), after=events.after)


def _as_signal(turn: Turn, first: RequestEvent) -> Signal:
    state = SignalState.PROMOTED
    return Signal(
        first.id,
        turn.id,
        SignalKind.EVENT,
        first.text,
        state,
        turn.created_at,
        first.attachments,
        event=first.event,
    )


def add_prune_notice(opening: CommitContent, policy: PrunePolicy, blocks: Sequence[Block]) -> CommitContent:
    """Add a notice after the header if the earlier `blocks` are to be shown shortened from now on."""
    notice = try_draft_prune(policy, blocks, opening.drafts)
    if notice is None:
        return opening
    header, *others = opening.drafts
    return replace(opening, drafts=(header, notice, *others))


def _draft(turn: Turn, kind: BlockType, what: str, body: Body, now: str) -> BlockDraft:
    return BlockDraft(turn.id, 0, kind, round_ref(turn.id, 0, what), body, now)


def _feedback_body(item: Feedback) -> FeedbackBody:
    return FeedbackBody(
        turn_id=item.turn_id,
        origin=item.origin,
        reaction=item.reaction.value if item.reaction else None,
        text=item.text,
    )
