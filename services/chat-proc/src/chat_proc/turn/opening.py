"""The beginning of a turn: header, prompt, attachments with a preview of their text, and feedback since the last
turn."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from chat_proc.agent.drafting import RoundPlace
from chat_proc.agent.open_turn import Writing
from chat_proc.agent.signal_folding import ShowFiles, fold_signals
from chat_proc.timeline.pruning import PrunePolicy, try_draft_prune
from chat_proc.tools.stored_files import is_text
from everturn.core.errors import EverturnError
from everturn.core.refs import prompt_ref, round_ref
from everturn.core.text import decode_text
from everturn.feedback.model import Feedback
from everturn.files.model import Artifact
from everturn.files.objects import Objects
from everturn.timeline.blocks import Block, BlockDraft, BlockType
from everturn.timeline.bodies import (
    AttachmentBody,
    AttachmentTextBody,
    Body,
    FeedbackBody,
    PromptBody,
    TitleBody,
    TurnHeaderBody,
)
from everturn.timeline.turns import RequestEvent, Signal, SignalKind, SignalState, Turn, TurnRequest

PREVIEW_BYTES = 64 * 1024
"""How much of a text attachment is read for its preview."""
PREVIEW_CHARS = 4_000
"""How much of the attachment the model sees without asking."""
MAX_PREVIEWS = 20
"""For the files that signals bring in one round."""
TITLE_CHARS = 60
CODE_FENCE = "```"

_log = structlog.get_logger(__name__)


def make_title(text: str) -> str:
    """A conversation's first title: the beginning of its first prompt, cut at a word and before a block of code."""
    words, _, code = text.partition(CODE_FENCE)
    line = " ".join(words.split()).rstrip(":") or " ".join(code.replace(CODE_FENCE, " ").split())
    if len(line) <= TITLE_CHARS:
        return line or "Untitled"
    return line[:TITLE_CHARS].rsplit(" ", 1)[0].rstrip(",;:.") + "…"


async def load_preview(objects: Objects, artifact: Artifact) -> AttachmentTextBody:
    """The beginning of a stored text file. A character cut by the byte limit is left out."""
    end = min(artifact.size, PREVIEW_BYTES)
    whole = end == artifact.size
    data = b"".join([chunk async for chunk in objects.load_range(artifact.object_key, start=0, end=end)])
    text = decode_text(data, artifact.mime, whole=whole)
    return AttachmentTextBody(
        filename=artifact.filename, text=text[:PREVIEW_CHARS], total_chars=len(text) if whole else None
    )


async def load_some_previews(
    objects: Objects, artifacts: Sequence[Artifact], *, limit_s: float = 10.0
) -> Mapping[str, AttachmentTextBody]:
    """Previews of the first text files among these, by ref. A file that can't be read in time has none."""
    previews: dict[str, AttachmentTextBody] = {}
    texts = [artifact for artifact in artifacts if is_text(artifact.mime)]
    try:
        async with asyncio.timeout(limit_s):
            for artifact in texts[:MAX_PREVIEWS]:
                previews[artifact.ref] = await load_preview(objects, artifact)
    except (EverturnError, TimeoutError) as error:
        # The file itself stays readable by its ref, once the store answers again.
        _log.warning("preview_missing", previews=len(previews), files=len(texts), error=str(error))
    return previews


async def load_previews(turn: Turn, objects: Objects, limit_s: float = 30.0) -> Mapping[str, AttachmentTextBody]:
    """The previews of the text attachments by ref. Raises Unavailable, NotFound or TimeoutError."""
    async with asyncio.timeout(limit_s):
        files = [*turn.request.attachments, *(file for event in turn.request.events for file in event.attachments)]
        texts = [artifact for artifact in files if is_text(artifact.mime)]
        return {artifact.ref: await load_preview(objects, artifact) for artifact in texts}


def title_source(request: TurnRequest) -> str:
    """The text from which a title is made: the prompt, or the text of the first event."""
    return request.text or next((event.text or event.event.kind for event in request.events), "")


def draft_opening(
    turn: Turn,
    feedback: Sequence[Feedback],
    previews: Mapping[str, AttachmentTextBody],
    now: str,
    show_files: ShowFiles,
) -> Writing:
    """All blocks before the first round: the request, then the events that the turn begins with."""
    request = turn.request
    header = TurnHeaderBody(ordinal=turn.ordinal, bundle_id=request.bundle_id)
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
    place = RoundPlace(turn.id, 0, 0, now)
    events = fold_signals([_as_signal(turn, event) for event in request.events], place, show_files, previews).writing
    # No rows of these need settling: they are part of the request.
    return Writing(drafts=(*drafts, *events.drafts), after=events.after)


def draft_gate(turn: Turn, title: str, now: str) -> BlockDraft:
    """The gate's decision at the beginning of a conversation: its title, once it is known."""
    return _draft(turn, BlockType.STAGE_GATE, "title", TitleBody(title=title), now)


def _as_signal(turn: Turn, told: RequestEvent) -> Signal:
    state = SignalState.PROMOTED
    return Signal(
        told.id, turn.id, SignalKind.EVENT, told.text, state, turn.created_at, told.attachments, event=told.event
    )


def add_prune_notice(opening: Writing, policy: PrunePolicy, blocks: Sequence[Block]) -> Writing:
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
