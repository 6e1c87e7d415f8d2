"""The beginning of a turn: header, prompt, attachments with a preview of their text, and feedback given meanwhile."""

import asyncio
import codecs
from collections.abc import Mapping, Sequence
from dataclasses import replace

from chat_proc.agent.open_turn import Writing
from chat_proc.timeline.pruning import PrunePolicy, try_draft_prune
from chat_proc.tools.file_types import is_text
from everturn.model.artifacts import Artifact
from everturn.model.block_bodies import (
    AttachmentBody,
    AttachmentTextBody,
    Body,
    FeedbackBody,
    PromptBody,
    TitleBody,
    TurnHeaderBody,
)
from everturn.model.blocks import Block, BlockDraft, BlockType
from everturn.model.feedback import Feedback
from everturn.model.refs import prompt_ref, round_ref
from everturn.model.turns import Turn
from everturn.ports.objects import Objects

PREVIEW_BYTES = 64 * 1024
"""How much of a text attachment is read for its preview."""
PREVIEW_CHARS = 4_000
"""How much of it the model sees unasked."""
TITLE_CHARS = 60


def make_title(text: str) -> str:
    """A conversation's first title: the beginning of its first prompt, cut at a word."""
    line = " ".join(text.split())
    if len(line) <= TITLE_CHARS:
        return line or "Untitled"
    return line[:TITLE_CHARS].rsplit(" ", 1)[0].rstrip(",;:.") + "…"


async def load_preview(objects: Objects, artifact: Artifact) -> AttachmentTextBody:
    """The beginning of a stored text file. A character cut by the byte limit is left out."""
    end = min(artifact.size, PREVIEW_BYTES)
    whole = end == artifact.size
    data = b"".join([chunk async for chunk in objects.load_range(artifact.object_key, start=0, end=end)])
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=whole)
    return AttachmentTextBody(
        filename=artifact.filename, text=text[:PREVIEW_CHARS], total_chars=len(text) if whole else None
    )


async def load_previews(turn: Turn, objects: Objects, limit_s: float = 30.0) -> Mapping[str, AttachmentTextBody]:
    """The previews of the text attachments by ref. Raises Unavailable, NotFound or TimeoutError."""
    async with asyncio.timeout(limit_s):
        texts = [artifact for artifact in turn.request.attachments if is_text(artifact.mime)]
        return {artifact.ref: await load_preview(objects, artifact) for artifact in texts}


def draft_opening(
    turn: Turn, feedback: Sequence[Feedback], previews: Mapping[str, AttachmentTextBody], now: str
) -> Writing:
    """All blocks before the first round."""
    request = turn.request
    header = TurnHeaderBody(ordinal=turn.ordinal, bundle_id=request.bundle_id)
    drafts = [_draft(turn, BlockType.TURN_HEADER, "header", header, now)]
    if turn.ordinal == 1:
        drafts.append(_draft(turn, BlockType.STAGE_GATE, "title", TitleBody(title=make_title(request.text)), now))
    for n, item in enumerate(feedback):
        drafts.append(_draft(turn, BlockType.FEEDBACK, f"feedback.{n}", _feedback_body(item), now))
    drafts.append(
        BlockDraft(turn.id, 0, BlockType.USER_PROMPT, prompt_ref(turn.id), PromptBody(text=request.text), now)
    )
    for artifact in request.attachments:
        drafts.append(
            BlockDraft(turn.id, 0, BlockType.ATTACHMENT_META, artifact.ref, AttachmentBody(artifact=artifact), now)
        )
        if (preview := previews.get(artifact.ref)) is not None:
            drafts.append(BlockDraft(turn.id, 0, BlockType.ATTACHMENT_TEXT, artifact.ref, preview, now))
    return Writing(drafts=tuple(drafts))


def add_prune_notice(opening: Writing, policy: PrunePolicy, blocks: Sequence[Block]) -> Writing:
    """The opening with a notice behind its header, when `blocks`, all before it, are to be shown short from now on."""
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
