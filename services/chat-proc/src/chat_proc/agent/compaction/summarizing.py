"""Writing a summary: two tries of a model, then rules, so that there always is one."""

import asyncio
from contextlib import aclosing

import structlog

from chat_proc.agent.prompt.system import load_topic
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

_log = structlog.get_logger(__name__)

SUMMARY_ROLE = "summary"
MAX_TRIES = 2
CALL_S = 60.0
"""How long one summary is waited for."""
MIN_OUTPUT_TOKENS = 1_024
"""Room for models that think before they write, and for headings."""
MAX_REPLY_CHARS = 60_000


class SummaryWriter:
    """Writes the summaries of one compaction, by rules alone when there is no model. `usage` is what they cost."""

    def __init__(self, model: LanguageModel | None, failpoints: Failpoints, *, call_s: float = CALL_S) -> None:
        self._model = model
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
        reply, usage, failed = "", None, False
        try:
            self._failpoints.hit("turn.in_compaction")
            async with asyncio.timeout(self._call_s), aclosing(model.generate(request)) as pieces:
                async for piece in pieces:
                    match piece:
                        case TextDelta(text):
                            reply += text
                        case ReplyFinished(reason, usage):
                            return None if reason == "refusal" else reply
                        case _:
                            """Reasoning is no summary."""
                    if len(reply) > MAX_REPLY_CHARS:
                        return reply
        except (ModelFailed, TimeoutError) as failure:
            failed = isinstance(failure, ModelFailed)
            _log.warning("no_summary", model=model.traits.name, why=str(failure))
        finally:
            if usage is not None or reply or not failed:
                output = snapshot.tokens_of(reply)
                cost = usage or ModelUsage(estimate_request(request, snapshot.ratio), output, estimated=True)
                self.usage.append(build_usage_event(model.traits.name, SUMMARY_ROLE, cost))
        return None


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
