"""The title of a conversation, set by its first turn: from a small structured call that runs beside it, or from its
prompt.

The call never fails the turn, and delays it only if the turn waits for a person anyway.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

from chat_proc.models.calls import CallTracker, describe_turn
from chat_proc.models.roles import TITLE
from chat_proc.models.structured import StructuredCallFailed, StructuredLimits, structured_call
from everturn.core.cancellation import end_tasks
from everturn.core.errors import EverturnError, NotFound, StaleFence
from everturn.core.refs import round_ref
from everturn.core.retry import RetryPolicy
from everturn.core.tracing import NO_TRACING, Attributes, Tracing
from everturn.events.model import ConvTitle
from everturn.models.port import LanguageModel, PromptMessage, TextPart
from everturn.timeline.blocks import BlockDraft, BlockType, TitleBody
from everturn.timeline.turns import Turn, TurnRequest
from everturn.turns.model import Lease, UsageEvent
from everturn.turns.ports import Timelines

_log = structlog.get_logger(__name__)

TITLE_CHARS = 60
CODE_FENCE = "```"
SETTLE_S = 3.0
"""How long a turn waits for its title before it parks for a person: it may not resume until the next day."""
MAX_PROMPT_CHARS = 4_000
"""How much of the first message the title call sees; a title summarizes its beginning."""
TITLE_LIMITS = StructuredLimits(limit_s=20.0, max_output_tokens=1_024, max_reply_chars=500)
"""The tokens leave room for models that think before they write."""
MAX_LINE_CHARS = 200
"""A longer line is an answer, not a title."""
TITLE_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
}
_AROUND = " \t#*_`\"'“”„«»"


class TitleCall:
    """One running call for a title. Owned by `run_title_call`; the turn's title uses its result so far when the turn
    ends.

    `turn` holds the span attributes that identify the turn.
    """

    def __init__(
        self,
        model: LanguageModel,
        messages: Sequence[PromptMessage],
        *,
        limits: StructuredLimits = TITLE_LIMITS,
        tracing: Tracing = NO_TRACING,
        turn: Attributes | None = None,
    ) -> None:
        self._model = model
        self._messages = messages
        self._limits = limits
        self._tracker = CallTracker(model.traits, TITLE, tracing=tracing, turn=turn)
        self._title: str | None = None

    async def run(self) -> None:
        """Ask the model. A failed call leaves no title."""
        try:
            result = await structured_call(
                self._model,
                self._messages,
                TITLE_SCHEMA,
                parse_fn=_read_title_field,
                regex_fallback=_try_find_title,
                limits=self._limits,
                tracker=self._tracker,
            )
        except StructuredCallFailed as failure:
            _log.warning(
                "Could not get a title from the model", model=self._model.traits.ledger_name, why=failure.detail
            )
        else:
            self._title = result.value

    def try_title(self) -> str | None:
        """The title; None if it has not arrived, or the model gave none."""
        return self._title

    def build_usage(self) -> tuple[UsageEvent, ...]:
        """The usage of each model call so far, estimated if the call has not ended."""
        return self._tracker.build_events()


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
        self._call = TitleCall(model, messages, tracing=tracing, turn=about)
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

    def take_usage(self) -> tuple[UsageEvent, ...]:
        """The usage of the model calls, once. One of them may still be running: it ends with the turn, so its usage so
        far is final."""
        usage = self._call.build_usage() if self._call and not self._is_usage_recorded else ()
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


def _read_title_field(raw: Mapping[str, Any]) -> str:
    title = try_read_title(raw["title"])
    if title is None:
        raise ValueError("`title` is not one short line of plain text")
    return title


def _try_find_title(reply: str) -> Mapping[str, Any] | None:
    """The title in a reply that is not JSON, as small models write it."""
    title = try_read_title(reply)
    return None if title is None else {"title": title}
