"""The title of a new conversation: one small model call concurrent with its first turn.

It never fails the turn, and delays it only if the turn waits for a person anyway.
"""

import asyncio
from contextlib import aclosing

import structlog

from chat_proc.models.calls import build_usage_event, describe_usage, open_call
from chat_proc.models.estimate import estimate_request
from chat_proc.models.roles import TITLE
from everturn.core.refs import round_ref
from everturn.core.tracing import NO_TRACING, Attributes, Tracing
from everturn.models.port import (
    LanguageModel,
    ModelFailed,
    ModelRequest,
    ModelUsage,
    ReplyFinished,
    TextDelta,
)
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import BlockDraft, BlockType
from everturn.timeline.bodies import TitleBody
from everturn.timeline.turns import Turn, TurnRequest
from everturn.turns.model import UsageEvent

_log = structlog.get_logger(__name__)

TITLE_S = 20.0
"""Time limit of the title call."""
MAX_REPLY_CHARS = 500
MAX_LINE_CHARS = 200
"""A longer line is an answer, not a title."""
TITLE_CHARS = 60
CODE_FENCE = "```"
_AROUND = " \t#*_`\"'“”„«»"


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


def try_read_title(reply: str) -> str | None:
    """The title in a reply; None if the reply is something else."""
    line = next((line.strip(_AROUND) for line in reply.splitlines() if line.strip(_AROUND)), "").rstrip(".")
    if not line or len(line) > MAX_LINE_CHARS or "<" in line or "{" in line:
        return None
    return make_title(line)
