"""The title of a conversation, set by its first turn: from a small model call that runs beside it, or from its prompt.

The call never fails the turn, and delays it only if the turn waits for a person anyway.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import structlog

from chat_proc.models.calls import build_usage_event, describe_turn, describe_usage, open_call
from chat_proc.models.cards import price_usage
from chat_proc.models.roles import TITLE
from everturn.core.cancellation import end_tasks
from everturn.core.errors import EverturnError, NotFound, StaleFence
from everturn.core.refs import round_ref
from everturn.core.retry import RetryPolicy
from everturn.core.tracing import NO_TRACING, Attributes, Tracing
from everturn.events.model import ConvTitle
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
from everturn.timeline.blocks import BlockDraft, BlockType, TitleBody
from everturn.timeline.turns import Turn, TurnRequest
from everturn.turns.model import Lease, UsageEvent
from everturn.turns.ports import Timelines

_log = structlog.get_logger(__name__)

TITLE_CHARS = 60
CODE_FENCE = "```"
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
    """One running call. Owned by `run_title_call`; the turn's title uses its result so far when the turn ends.

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
            _log.warning("Could not get a title from the model", model=self._model.traits.ledger_name, why=str(failure))

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
            usage = price_usage(usage, self._model.traits)
        return build_usage_event(self._model.traits.ledger_name, TITLE, usage)

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


class TurnTitle:
    """The title that a turn gives its conversation. Owned by the leased turn; `emit` announces a title to clients."""

    def __init__(
        self, lease: Lease, turn: Turn, timelines: Timelines, retries: RetryPolicy, emit: Callable[[ConvTitle], None]
    ) -> None:
        self._lease = lease
        self._turn = turn
        self._timelines = timelines
        self._retries = retries
        self._emit = emit
        self._call: TitleCall | None = None
        self._is_usage_recorded = False
        self.given = ""
        """The model's title, once it is saved and announced."""

    def try_prepare_call(self, model: LanguageModel | None, prompt: str, tracing: Tracing) -> TitleCall | None:
        """The call that asks `model` for the title; None without a model, without a text, or after the first turn."""
        text = title_source(self._turn.request).strip()
        if model is None or self._turn.ordinal != 1 or not text:
            return None
        messages = (
            PromptMessage("system", (TextPart(prompt),)),
            PromptMessage("user", (TextPart(text[:MAX_PROMPT_CHARS]),)),
        )
        about = describe_turn(self._turn.conversation_id, self._turn.id)
        self._call = TitleCall(model, ModelRequest(messages, MAX_OUTPUT_TOKENS), tracing=tracing, turn=about)
        return self._call

    async def give(self, title: str) -> None:
        """Save and announce the model's title, unless a person has set one. The next commit records it."""
        if await self._retries.call(lambda: self._timelines.save_title(self._lease, title)):
            self.given = title
            self._emit(ConvTitle(title=title))

    async def settle(self) -> tuple[str, str | None]:
        """The conversation's title, and the title that is still to be saved or announced; empty and None if this isn't
        its first turn."""
        if self._turn.ordinal != 1:
            return "", None
        present = await self.load()
        better = self._call.try_title() if self._call else None
        if present:
            # The call may have been cancelled between saving its title and announcing it.
            return present, (present if present == better else None)
        title = better or make_title(title_source(self._turn.request))
        return title, title

    async def load(self) -> str:
        """The saved title; empty if there is none yet."""
        where = self._lease.principal, self._lease.conversation_id
        try:
            return await self._retries.call(lambda: self._timelines.load_title(*where))
        except NotFound as erased:
            raise StaleFence(self._lease.conversation_id) from erased

    def take_usage(self) -> UsageEvent | None:
        """The cost of the call, once; None if it has none. The call may still be running: it ends with the turn, so its
        cost so far is its final cost."""
        usage = self._call.build_usage() if self._call and not self._is_usage_recorded else None
        self._is_usage_recorded = True
        return usage


@asynccontextmanager
async def run_title_call(
    title: TurnTitle, model: LanguageModel | None, prompt: str, tracing: Tracing
) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """Request a title while the body runs, if the turn is a conversation's first; the call ends with the body.

    Yields a function that waits for the title, for at most SETTLE_S. Without a `model` none is requested.
    """
    call = title.try_prepare_call(model, prompt, tracing)
    if call is None:
        yield _no_title
        return
    call_task = asyncio.create_task(_give_title(title, call))

    async def settle() -> None:
        await asyncio.wait({call_task}, timeout=SETTLE_S)

    try:
        yield settle
    finally:
        await end_tasks(call_task)
        if call_task.done() and not call_task.cancelled() and (error := call_task.exception()) is not None:
            _log.error("Title call failed", exc_info=error)


async def _give_title(title: TurnTitle, call: TitleCall) -> None:
    await call.run()
    text = call.try_title()
    if text is None:
        return
    try:
        await title.give(text)
    except EverturnError as error:
        # The turn meets the same error in its own commits and handles it there. Its last commit writes the title.
        _log.warning("Could not save the title", error=str(error))


async def _no_title() -> None:
    """Return at once: no title was requested."""


def make_title(text: str) -> str:
    """A conversation's first title: the beginning of its first prompt, cut at a word and before a block of code."""
    words, _, code = text.partition(CODE_FENCE)
    line = " ".join(words.split()).rstrip(":") or " ".join(code.replace(CODE_FENCE, " ").split())
    if len(line) <= TITLE_CHARS:
        return line or "Untitled"
    return line[:TITLE_CHARS].rsplit(" ", 1)[0].rstrip(",;:.") + "…"


def title_source(request: TurnRequest) -> str:
    """The text from which a title is made: the prompt, or the text of the first event."""
    return request.text or next((event.text or event.event.kind for event in request.events), "")


def draft_gate(turn: Turn, title: str, now: str) -> BlockDraft:
    """The gate's decision at the beginning of a conversation: its title, once it is known."""
    body = TitleBody(title=title)
    return BlockDraft(turn.id, 0, BlockType.STAGE_GATE, round_ref(turn.id, 0, "title"), body, now)


def try_read_title(reply: str) -> str | None:
    """The title in a reply; None if the reply is something else."""
    line = next((line.strip(_AROUND) for line in reply.splitlines() if line.strip(_AROUND)), "").rstrip(".")
    if not line or len(line) > MAX_LINE_CHARS or "<" in line or "{" in line:
        return None
    return make_title(line)
