"""The beginning of a turn: header, prompt, attachments with a preview of their text, and feedback since the last
turn."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import structlog

from chat_proc.agent.drafting import RoundPlace
from chat_proc.agent.kit import TurnKit
from chat_proc.agent.signal_folding import ShowFiles, fold_signals
from chat_proc.models.calls import describe_turn
from chat_proc.timeline.pruning import PrunePolicy, try_draft_prune
from chat_proc.turn.leased import LeasedTurn, Writing
from chat_proc.turn.titling import TitleCall, title_source
from everturn.core.cancellation import end_tasks
from everturn.core.errors import EverturnError
from everturn.core.refs import prompt_ref, round_ref
from everturn.core.tracing import Tracing
from everturn.feedback.model import Feedback
from everturn.models.port import ModelRequest, PromptMessage, TextPart
from everturn.timeline.blocks import Block, BlockDraft, BlockType
from everturn.timeline.bodies import (
    AttachmentBody,
    AttachmentTextBody,
    Body,
    FeedbackBody,
    PromptBody,
    TurnHeaderBody,
)
from everturn.timeline.turns import RequestEvent, Signal, SignalKind, SignalState, Turn

_log = structlog.get_logger(__name__)

SETTLE_S = 3.0
"""How long a turn waits for its title before it parks for a person: it may not resume until the next day."""
MAX_PROMPT_CHARS = 4_000
"""How much of the first message the title call sees; a title summarizes its beginning."""
MAX_OUTPUT_TOKENS = 1_024
"""Room for models that think before they write."""


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


@asynccontextmanager
async def call_title_beside(
    turn: LeasedTurn, kit: TurnKit, tracing: Tracing
) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """Request a title while the body runs, if the turn is a conversation's first; the call ends with the body.

    Yields a function that waits for the title, for at most SETTLE_S. Without a title model none is requested.
    """
    call = None if turn.is_titled else _try_build_title_call(turn.turn, kit, tracing)
    if call is None:
        yield _no_title
        return
    turn.title_call = call
    call_task = asyncio.create_task(_give_title(turn, call))

    async def settle() -> None:
        await asyncio.wait({call_task}, timeout=SETTLE_S)

    try:
        yield settle
    finally:
        await end_tasks(call_task)
        if call_task.done() and not call_task.cancelled() and (error := call_task.exception()) is not None:
            _log.error("Title call failed", exc_info=error)


async def _give_title(turn: LeasedTurn, call: TitleCall) -> None:
    await call.run()
    title = call.try_title()
    if title is None:
        return
    try:
        await turn.give_title(title)
    except EverturnError as error:
        # The turn meets the same error in its own commits and handles it there. Its last commit writes the title.
        _log.warning("Could not save the title", error=str(error))


def _try_build_title_call(turn: Turn, kit: TurnKit, tracing: Tracing) -> TitleCall | None:
    text = title_source(turn.request).strip()
    if kit.title_model is None or turn.ordinal != 1 or not text:
        return None
    messages = (
        PromptMessage("system", (TextPart(kit.title_prompt),)),
        PromptMessage("user", (TextPart(text[:MAX_PROMPT_CHARS]),)),
    )
    about = describe_turn(turn.conversation_id, turn.id)
    return TitleCall(kit.title_model, ModelRequest(messages, MAX_OUTPUT_TOKENS), tracing=tracing, turn=about)


async def _no_title() -> None:
    """Return at once: no title was requested."""
