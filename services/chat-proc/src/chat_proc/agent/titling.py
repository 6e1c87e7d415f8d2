"""The title of a new conversation: one small model call concurrent with its first turn.

It never fails the turn, and delays it only if the turn waits for a person anyway.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import structlog

from chat_proc.agent.kit import TurnKit
from chat_proc.models.calls import build_usage_event, describe_turn, describe_usage, open_call
from chat_proc.models.roles import TITLE
from chat_proc.turn.leased import LeasedTurn
from chat_proc.turn.titling import make_title, title_source
from everturn.core.cancellation import end_tasks
from everturn.core.errors import EverturnError
from everturn.core.tracing import NO_TRACING, Attributes, Tracing
from everturn.models.port import (
    LanguageModel,
    ModelFailed,
    ModelRequest,
    ModelUsage,
    PromptMessage,
    ReplyFinished,
    TextDelta,
    TextPart,
)
from everturn.models.tokens import CharsPerToken, estimate_request
from everturn.timeline.turns import Turn
from everturn.turns.model import UsageEvent

_log = structlog.get_logger(__name__)

TITLE_S = 20.0
"""Time limit of the title call."""
SETTLE_S = 3.0
"""How long a turn waits for its title before it parks for a person: it may not resume until the next day."""
MAX_PROMPT_CHARS = 4_000
"""How much of the first message the title call sees; a title summarizes its beginning."""
MAX_OUTPUT_TOKENS = 1_024
"""Room for models that think before they write."""
MAX_REPLY_CHARS = 500
MAX_LINE_CHARS = 200
"""A longer line is an answer, not a title."""
_AROUND = " \t#*_`\"'“”„«»"


class TitleCall:
    """One running call. Owned by `run_title_call`; the turn uses its result so far when it ends.

    `turn` holds the span attributes that identify the turn.
    """

    def __init__(
        self,
        model: LanguageModel,
        request: ModelRequest,
        *,
        limit_s: float = TITLE_S,
        tracing: Tracing = NO_TRACING,
        turn: Attributes | None = None,
    ) -> None:
        self._model = model
        self._request = request
        self._limit_s = limit_s
        self._tracing = tracing
        self._turn = turn or {}
        self._reply = ""
        self._usage: ModelUsage | None = None
        self._has_failed = False
        self._is_whole = False

    async def run(self) -> None:
        """Call the model, for at most `limit_s`. A failed call leaves no title."""
        try:
            with open_call(self._tracing, self._model.traits, self._request, role=TITLE, turn=self._turn) as span:
                try:
                    await self._call_model()
                finally:
                    if (usage := self.build_usage()) is not None:
                        span.note(describe_usage(usage))
        except (ModelFailed, TimeoutError) as failure:
            _log.warning("Could not get a title from the model", model=self._model.traits.name, why=str(failure))

    def try_title(self) -> str | None:
        """The title; None if the reply has not arrived, or is not a title."""
        return try_read_title(self._reply) if self._is_whole else None

    def build_usage(self) -> UsageEvent | None:
        """The cost of the call so far, estimated if it has not ended; None if it failed without any output."""
        usage = self._usage
        if usage is None and self._has_failed and not self._reply:
            return None
        if usage is None:
            ratio = CharsPerToken()
            output = ratio.tokens_for(len(self._reply))
            usage = ModelUsage(estimate_request(self._request, ratio), output, estimated=True)
        return build_usage_event(self._model.traits.name, TITLE, usage)

    async def _call_model(self) -> None:
        """Raises ModelFailed, TimeoutError."""
        try:
            async with asyncio.timeout(self._limit_s):
                await self._read()
        except ModelFailed:
            self._has_failed = True
            raise

    async def _read(self) -> None:
        async with aclosing(self._model.generate(self._request)) as pieces:
            async for piece in pieces:
                match piece:
                    case TextDelta(text):
                        self._reply += text
                    case ReplyFinished():
                        self._usage = piece.usage
                        self._is_whole = True
                    case _:
                        """Reasoning is no title."""
                if len(self._reply) > MAX_REPLY_CHARS:
                    return


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


def try_read_title(reply: str) -> str | None:
    """The title in a reply; None if the reply is something else."""
    line = next((line.strip(_AROUND) for line in reply.splitlines() if line.strip(_AROUND)), "").rstrip(".")
    if not line or len(line) > MAX_LINE_CHARS or "<" in line or "{" in line:
        return None
    return make_title(line)
