"""Model calls of a turn beside those of its rounds: what they show the model, and how structured ones run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from chat_proc.agent.kit import TurnKit
from chat_proc.models.calls import CallTracker, ModelRole, describe_turn
from chat_proc.models.structured import StructuredLimits, structured_call
from chat_proc.turn.leased import LeasedTurn
from chat_proc.turn.manifests import RequestRecord
from everturn.core.cancellation import Ran, run_until
from everturn.core.tracing import Tracing
from everturn.models.port import LanguageModel, ModelPiece, ModelRequest, ModelTraits, PromptMessage, TextPart
from everturn.timeline.blocks import AttachmentBody, Block, EventBody, PromptBody, SegmentBody, SignalBody
from everturn.timeline.inert import make_inert

MAX_MESSAGE_CHARS: Final = 10_000
MAX_QUESTION_CHARS: Final = 20_000
"""The last messages are kept if there is not room for all of them."""

T = TypeVar("T")


async def call_for_turn(
    turn: LeasedTurn,
    model: LanguageModel,
    role: ModelRole,
    messages: Sequence[PromptMessage],
    schema: Mapping[str, object],
    *,
    parse_fn: Callable[[Mapping[str, Any]], T],
    default_value: T,
    limits: StructuredLimits,
    tracing: Tracing,
    note_request: Callable[[ModelRequest], None] | None = None,
    note_piece: Callable[[ModelPiece], None] | None = None,
) -> T | None:
    """The value of a structured call, or the default if the model fails. None if a steer or a cancel ended the call.

    The turn records what it cost in any case. `note_request` and `note_piece` are those of CallTracker.
    """
    about = describe_turn(turn.lease.conversation_id, turn.turn_id)
    tracker = CallTracker(
        model.traits, role, tracing=tracing, turn=about, note_request=note_request, note_piece=note_piece
    )

    async def ask() -> T:
        with turn.activity.open_call("model call"):
            result = await structured_call(
                model, messages, schema, parse_fn=parse_fn, default_value=default_value, limits=limits, tracker=tracker
            )
            return result.value

    try:
        ran = await run_until(turn.inbox.wait_for_control(), ask())
    finally:
        for usage in tracker.build_events():
            turn.record_usage(usage)
    return ran.value if isinstance(ran, Ran) else None


def keep_request(turn: LeasedTurn, kit: TurnKit, model: ModelTraits, request: ModelRequest, round_number: int) -> None:
    """Store a request that `build_messages` began as the input of this round."""
    prompt = next(part.text for part in request.messages[0].parts if isinstance(part, TextPart))
    turn.manifests.keep(
        RequestRecord(
            request=request,
            items=(),
            turn_id=turn.turn_id,
            round=round_number,
            model=model.ledger_name,
            sent_at=turn.now(),
            ratio=kit.ratios.of(model.ledger_name),
            preamble=turn.manifests.keep_preamble(prompt, request.tools),
        )
    )


def build_messages(prompt: str, sections: Mapping[str, str]) -> tuple[PromptMessage, ...]:
    """The prompt, and the sections below their titles, without empty ones."""
    text = "\n\n".join(f"[{title}]\n{make_inert(text)}" for title, text in sections.items() if text)
    return PromptMessage("system", (TextPart(prompt),)), PromptMessage("user", (TextPart(text),))


def build_question(turn_blocks: Iterable[Block]) -> str:
    """What the person has said in this turn, the files that they attached, and the tasks that a workflow gave."""
    said: list[str] = []
    for block in turn_blocks:
        match block.body:
            case PromptBody(text=text) | SignalBody(text=text) | EventBody(text=text) | SegmentBody(text=text) if text:
                said.append(text)
            case AttachmentBody(artifact=artifact):
                said.append(f"File: {artifact.filename} {artifact.ref}")
            case _:
                """Not to be answered."""
    return "\n\n".join(text[:MAX_MESSAGE_CHARS] for text in said)[-MAX_QUESTION_CHARS:]


def shorten(text: str, max_chars: int) -> str:
    """The beginning of a text that is longer."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}..."
