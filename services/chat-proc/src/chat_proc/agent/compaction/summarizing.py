"""Writing a summary: two tries of a model, then rules, so that there always is one."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import structlog

from chat_proc.agent.prompt.system import load_topic
from chat_proc.models.calls import describe_usage, open_call
from chat_proc.models.estimate import estimate_request
from chat_proc.models.usage import build_usage_event
from chat_proc.timeline.compaction.cut import Cut
from chat_proc.timeline.compaction.memory import Memory, build_memory, try_read_memory
from chat_proc.timeline.compaction.snapshot import Snapshot
from chat_proc.timeline.compaction.transcript import render_transcript, render_working_summaries
from everturn.model.block_bodies import RangeSummaryBody
from everturn.model.commits import UsageEvent
from everturn.model.llm.prompts import ModelRequest, PromptMessage, TextPart
from everturn.ports.language_model import LanguageModel, ModelFailed, ModelUsage, ReplyFinished, TextDelta
from everturn.telemetry.failpoints import Failpoints
from everturn.telemetry.tracing.spans import NO_TRACING, Attributes, Tracing

_log = structlog.get_logger(__name__)

SUMMARY_ROLE: Final = "summary"
MAX_TRIES = 2
CALL_S = 60.0
"""How long one summary is waited for."""
MIN_OUTPUT_TOKENS = 1_024
"""Room for models that think before they write, and for headings."""
MAX_REPLY_CHARS = 60_000


@dataclass(slots=True)
class _Reply:
    """One reply on its way. It counts once it has ended well or is long enough."""

    text: str = ""
    usage: ModelUsage | None = None
    counts: bool = False
    has_failed: bool = False

    @property
    def is_free(self) -> bool:
        """As a call that failed without a word."""
        return self.has_failed and not self.text and self.usage is None


class SummaryWriter:
    """Writes the summaries of one compaction, by rules alone when there is no model. `usage` is what they cost, `turn`
    what the spans of its model calls say of the turn."""

    def __init__(
        self,
        model: LanguageModel | None,
        failpoints: Failpoints,
        *,
        call_s: float = CALL_S,
        tracing: Tracing = NO_TRACING,
        turn: Attributes | None = None,
    ) -> None:
        self._model = model
        self._tracing = tracing
        self._turn = turn or {}
        self._failpoints = failpoints
        self._call_s = call_s
        self.usage: list[UsageEvent] = []

    async def write(self, snapshot: Snapshot, cut: Cut) -> Memory:
        """From the model's first reply that is a summary; from rules when there is none."""
        if self._model is not None:
            request = build_summary_request(snapshot, cut, context_tokens=self._model.traits.context_tokens)
            for _ in range(MAX_TRIES):
                reply = await self._try_ask(self._model, request, snapshot)
                if reply is not None and (memory := try_read_memory(snapshot, cut, reply)) is not None:
                    return memory
        return build_memory(snapshot, cut)

    async def _try_ask(self, model: LanguageModel, request: ModelRequest, snapshot: Snapshot) -> str | None:
        """The reply; None when there is none. What it cost is kept whatever comes of it, also when it is cancelled."""
        reply = _Reply()
        try:
            with open_call(self._tracing, model.traits, request, role=SUMMARY_ROLE, turn=self._turn) as span:
                try:
                    await self._ask(model, request, reply)
                finally:
                    if not reply.is_free:
                        output = snapshot.tokens_of(reply.text)
                        told = ModelUsage(estimate_request(request, snapshot.ratio), output, estimated=True)
                        self.usage.append(build_usage_event(model.traits.name, SUMMARY_ROLE, reply.usage or told))
                        span.note(describe_usage(self.usage[-1]))
        except (ModelFailed, TimeoutError) as failure:
            _log.warning("no_summary", model=model.traits.name, why=str(failure))
        return reply.text if reply.counts else None

    async def _ask(self, model: LanguageModel, request: ModelRequest, reply: _Reply) -> None:
        """Raises ModelFailed, TimeoutError."""
        self._failpoints.hit("turn.in_compaction")
        try:
            async with asyncio.timeout(self._call_s):
                await _read(model, request, reply)
        except ModelFailed:
            reply.has_failed = True
            raise


async def _read(model: LanguageModel, request: ModelRequest, reply: _Reply) -> None:
    """Take in a reply until it ends, breaks off or is long enough. Raises ModelFailed."""
    async with aclosing(model.generate(request)) as pieces:
        async for piece in pieces:
            match piece:
                case TextDelta(text):
                    reply.text += text
                case ReplyFinished(reason, usage):
                    reply.usage, reply.counts = usage, reason != "refusal"
                    return
                case _:
                    """Reasoning is no summary."""
            if len(reply.text) > MAX_REPLY_CHARS:
                reply.counts = True
                return


def build_summary_request(snapshot: Snapshot, cut: Cut, *, context_tokens: int) -> ModelRequest:
    """Instruction, working summaries, the record and the memory before it; never longer than the model takes."""
    output = max(MIN_OUTPUT_TOKENS, snapshot.limits.text_tokens)
    previous = cut.previous.body.text if cut.previous and isinstance(cut.previous.body, RangeSummaryBody) else ""
    topics = ["range", *(["range_turn"] if cut.scope == "turn" else []), *(["range_update"] if previous else [])]
    system = "\n\n".join(map(load_topic, topics))
    noted = render_working_summaries(cut.blocks)
    before = [f"[WORKING SUMMARIES]\n{noted}"] if noted else []
    after = [f"[PREVIOUS MEMORY]\n{previous}"] if previous else []
    around = snapshot.tokens_of("".join((system, *before, *after)))
    room = max(0, context_tokens - output - around - snapshot.limits.text_tokens)
    record = render_transcript(cut.blocks, snapshot.hidden, room, snapshot.tokens_of)
    user = "\n\n".join((*before, f"[RECORD]\n{record}", *after))
    messages = (PromptMessage("system", (TextPart(system),)), PromptMessage("user", (TextPart(user),)))
    return ModelRequest(messages, output)
