"""Requests the title of a new conversation while its first turn runs."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from chat_proc.agent.kit import TurnKit
from chat_proc.models.calls import describe_turn
from chat_proc.turn.leased import LeasedTurn
from chat_proc.turn.titling import TitleCall, title_source
from everturn.core.cancellation import end_tasks
from everturn.core.errors import EverturnError
from everturn.core.tracing import Tracing
from everturn.models.port import ModelRequest, PromptMessage, TextPart
from everturn.timeline.turns import Turn

_log = structlog.get_logger(__name__)

SETTLE_S = 3.0
"""How long a turn waits for its title before it parks for a person: it may not resume until the next day."""
MAX_PROMPT_CHARS = 4_000
"""How much of the first message the title call sees; a title summarizes its beginning."""
MAX_OUTPUT_TOKENS = 1_024
"""Room for models that think before they write."""


@asynccontextmanager
async def run_title_call(
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
