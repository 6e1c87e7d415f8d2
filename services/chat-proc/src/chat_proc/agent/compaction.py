"""Keeps the requests of a turn within the model's context: in the background while there is room, otherwise blocking.

A summary is computed from a snapshot of the blocks and handed to the loop, which appends it at a round boundary. Until
then none of it is stored, so a worker that dies leaves nothing behind, and the next one computes it again.

Whatever folds or reads the whole conversation runs in a thread, because other turns share the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog

from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.prompt.system import load_topic
from chat_proc.agent.prompting import TurnPrompts
from chat_proc.models.calls import CallTracker, describe_turn
from chat_proc.models.roles import SUMMARY
from chat_proc.timeline.compaction.conditions import Shrunk, cover, shrink_by_rules
from chat_proc.timeline.compaction.cut import (
    HARD_STEPS,
    LAST_RESORTS,
    SOFT_STEPS,
    ContextLimits,
    Cut,
    Snapshot,
    choose_cut,
    find_step,
    is_worth,
)
from chat_proc.timeline.compaction.summary import Summary, build_summary, restamp, try_read_summary
from chat_proc.timeline.compaction.turn_facts import render_transcript, render_working_summaries
from chat_proc.turn.leased import CommitContent, LeasedTurn
from everturn.core.cancellation import Stopped, end_tasks, run_until
from everturn.core.failpoints import Failpoints
from everturn.core.loops import guarded
from everturn.core.metrics import COMPACTIONS
from everturn.core.tracing import NO_TRACING, Attributes, Tracing
from everturn.events.model import ChatCompaction
from everturn.models.port import (
    ContextLimitExceeded,
    LanguageModel,
    ModelFailed,
    ModelRequest,
    PromptMessage,
    TextDelta,
    TextPart,
)
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import BlockDraft, RangeSummaryBody
from everturn.turns.model import UsageEvent

_log = structlog.get_logger(__name__)

MAX_SUMMARY_TRIES = 2
CALL_S = 60.0
"""Time limit of one summary call."""
MIN_OUTPUT_TOKENS = 1_024
"""Room for models that think before they write, and for headings."""
MAX_REPLY_CHARS = 60_000

_Reply = TypeVar("_Reply")

GROWTH_PERCENT = 2
"""Percentage of the context limit by which a request has to grow before a compaction without effect is retried."""


class SummaryWriter:
    """Writes the summaries of one compaction, by rules only if there is no model. `turn` holds the attributes that
    identify the turn in the spans of its model calls.

    A model gets two attempts, then rules follow, so that there always is a summary.
    """

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
        self._tracker = None if model is None else CallTracker(model.traits, SUMMARY, tracing=tracing, turn=turn)
        self._failpoints = failpoints
        self._call_s = call_s

    @property
    def usage(self) -> tuple[UsageEvent, ...]:
        """What the model calls have cost so far, also those that failed or were cancelled."""
        return () if self._tracker is None else self._tracker.build_events()

    async def write(self, snapshot: Snapshot, cut: Cut) -> Summary:
        """Return the model's first reply that is a summary; a summary by rules if there is none."""
        if self._model is not None and self._tracker is not None:
            context_tokens = self._model.traits.context_tokens
            request = await asyncio.to_thread(build_summary_request, snapshot, cut, context_tokens=context_tokens)
            for _ in range(MAX_SUMMARY_TRIES):
                reply = await self._try_write(self._model, self._tracker, request, snapshot.ratio)
                if reply is None:
                    continue
                memory = await asyncio.to_thread(try_read_summary, snapshot, cut, reply)
                if memory is not None:
                    return memory
        return await asyncio.to_thread(build_summary, snapshot, cut)

    async def _try_write(
        self, model: LanguageModel, tracker: CallTracker, request: ModelRequest, ratio: CharsPerToken
    ) -> str | None:
        """Return a reply that has ended successfully or is long enough, otherwise None."""
        text = ""
        try:
            with tracker.open_call(request, ratio) as call:
                self._failpoints.hit("turn.in_compaction")
                async with asyncio.timeout(self._call_s), aclosing(model.generate(request)) as pieces:
                    async for piece in pieces:
                        call.note(piece)
                        if isinstance(piece, TextDelta):
                            text += piece.text
                        if len(text) > MAX_REPLY_CHARS:
                            return text
        except (ModelFailed, TimeoutError) as failure:
            _log.warning("Could not get a summary from the model", model=model.traits.ledger_name, why=str(failure))
            return None
        return text if call.finish is not None and call.finish.reason != "refusal" else None


def build_summary_request(snapshot: Snapshot, cut: Cut, *, context_tokens: int) -> ModelRequest:
    """Instruction, working summaries, the record and the previous memory; never longer than the model accepts."""
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


@dataclass(frozen=True, slots=True)
class _Work:
    """A running compaction; `before_tokens` is the length of the request at its start."""

    reason: str
    snapshot: Snapshot
    before_tokens: int
    writer: SummaryWriter
    task: asyncio.Task[Shrunk]


class RequestRoom(Protocol):
    """Makes model calls whose requests have to fit into the context of the model."""

    async def run_fitting(
        self, context: RoundContext, generate: Callable[[], Awaitable[_Reply]], *, allow_model: bool = True
    ) -> _Reply:
        """Make one model call. Raises ContextLimitExceeded if its request is too long and can't be shortened; without
        `allow_model` no model is called to shorten it."""
        ...


class TurnCompaction:
    """Owned by the loop's run of one turn, which calls `finish` before each end and `abandon` when it leaves."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies, turn: LeasedTurn, prompts: TurnPrompts) -> None:
        self._model = kit.summary_model
        self._parts = parts
        self._turn = turn
        self._prompts = prompts
        self._limits = kit.context
        self._work: _Work | None = None
        self._fixed_tokens = 0
        """Tokens of a request in addition to the timeline, as last measured."""
        self._futile_below = 0
        """Shorter requests are not compacted: the last compaction had no effect."""

    async def make_room(self, context: RoundContext, *, allow_model: bool = True) -> None:
        """At a round boundary: append a finished summary, and ensure that the next request fits.

        A turn that has reached a cap must not call a model for summaries (`allow_model` is False), nor start one in the
        background.
        """
        if self._work is not None and self._work.task.done():
            await self._append(self._work, await _result_of(self._work))
        tokens = await self._measure(context)
        if tokens >= self._limits.hard and self._work is not None:
            await self._wait(self._work)
            tokens = await self._measure(context)
        is_hard = tokens >= self._limits.hard
        if (
            tokens < max(self._limits.soft, self._futile_below)
            or self._work is not None
            or not (is_hard or allow_model)
        ):
            return
        snapshot = self._take_snapshot()
        steps = HARD_STEPS if is_hard else SOFT_STEPS
        if await asyncio.to_thread(find_step, snapshot, steps, last_resort=is_hard) is None:
            self._note_without_effect(tokens)
            return
        work = self._begin(snapshot, "hard" if is_hard else "soft", tokens, self._model if allow_model else None)
        if is_hard:
            await self._wait(work)

    async def run_fitting(
        self, context: RoundContext, generate: Callable[[], Awaitable[_Reply]], *, allow_model: bool = True
    ) -> _Reply:
        """As in `RequestRoom`: if the provider rejects the request as too long, it is shortened and sent once more."""
        try:
            return await generate()
        except ContextLimitExceeded:
            if not await self.force(context, allow_model=allow_model):
                raise
            return await generate()

    async def force(self, context: RoundContext, *, allow_model: bool = True) -> bool:
        """Shorten the request after the provider rejected it as too long; returns whether it is shorter now. Its length
        counts as the limit for the rest of the turn. `allow_model` as in `make_room`."""
        await self.abandon()
        tokens = await self._measure(context)
        self._limits = ContextLimits(min(self._limits.max_tokens, tokens))
        model = self._model if allow_model else None
        await self._wait(self._begin(self._take_snapshot(), "context_limit", tokens, model))
        return await self._measure(context) < tokens

    async def finish(self) -> CommitContent:
        """Return a finished summary, to be written with the end of the turn: a separate commit would separate the texts
        of the last round from their blocks. An unfinished summary is cancelled."""
        work = self._work
        content = (
            await self._build_content(work, await _result_of(work))
            if work is not None and work.task.done()
            else CommitContent()
        )
        await self.abandon()
        return content

    async def abandon(self) -> None:
        """Cancel a running compaction and wait for its end. Writes nothing."""
        work = self._work
        if work is None:
            return
        await end_tasks(work.task)
        self._skip(work, "turn_left")
        if work.task.done() and not work.task.cancelled() and (error := work.task.exception()) is not None:
            _log.error("Compaction failed", exc_info=error)

    async def _measure(self, context: RoundContext) -> int:
        """Tokens of the request that would be sent now."""
        tokens = await self._prompts.measure(context)
        self._fixed_tokens = max(0, tokens - self._prompts.ratio.tokens_for(self._prompts.view.chars))
        return tokens

    def _take_snapshot(self) -> Snapshot:
        """A snapshot of the conversation now."""
        turn = self._turn
        return Snapshot(
            blocks=tuple(turn.blocks),
            turn_id=turn.turn_id,
            round=turn.progress.last_round,
            now=turn.now(),
            fixed_tokens=self._fixed_tokens,
            limits=self._limits,
            ratio=self._prompts.ratio,
        )

    def _begin(self, snapshot: Snapshot, reason: str, tokens: int, model: LanguageModel | None) -> _Work:
        self._turn.emit(ChatCompaction(status="started", reason=reason, before_tokens=tokens))
        about = describe_turn(self._turn.lease.conversation_id, self._turn.turn_id)
        attributes = {**about, "everturn.compaction.reason": reason, "everturn.compaction.before_tokens": tokens}
        writer = SummaryWriter(model, self._parts.failpoints, tracing=self._parts.tracing, turn=about)
        shrinking = asyncio.create_task(self._shrink(reason, snapshot, writer, attributes), name="compaction")
        self._work = _Work(reason, snapshot, tokens, writer, shrinking)
        return self._work

    async def _shrink(self, reason: str, snapshot: Snapshot, writer: SummaryWriter, attributes: Attributes) -> Shrunk:
        """Shrink within a span, which ends as failed if the work is cancelled."""
        shrink = _shrink_softly if reason == "soft" else _shrink_to_fit
        with self._parts.tracing.span("compaction", attributes) as span:
            shrunk = await shrink(snapshot, writer)
            span.note({"everturn.compaction.after_tokens": shrunk.snapshot.tokens})
            return shrunk

    async def _wait(self, work: _Work) -> None:
        """Wait for the result and append it. A steer or a cancel does not wait for a model: then rules are used."""
        ran = await run_until(self._turn.inbox.wait_for_control(), self._await_result(work))
        await self._append(work, await _shrink_by_rules(work.snapshot) if isinstance(ran, Stopped) else ran.value)

    async def _await_result(self, work: _Work) -> Shrunk:
        with self._turn.activity.open_call("summary"):
            return await _result_of(work)

    async def _append(self, work: _Work, shrunk: Shrunk) -> None:
        content = await self._build_content(work, shrunk)
        if content.drafts:
            await self._turn.commit(content)

    async def _build_content(self, work: _Work, shrunk: Shrunk) -> CommitContent:
        """Build what is to be written of finished work; nothing if it saved nothing."""
        saving = await asyncio.to_thread(_measure_saving, self._take_snapshot(), shrunk)
        if saving.after_tokens >= saving.before_tokens:
            self._note_without_effect(saving.before_tokens)
            self._skip(work, "nothing_to_save")
            return CommitContent()
        self._work = None
        COMPACTIONS.labels(work.reason).inc()
        completed = ChatCompaction(
            status="completed",
            reason=work.reason,
            before_tokens=saving.before_tokens,
            after_tokens=saving.after_tokens,
            original_messages=saving.before_entries,
            kept_messages=saving.after_entries,
        )
        return CommitContent(drafts=saving.drafts, usage=work.writer.usage, after=((completed, None),))

    def _skip(self, work: _Work, reason: str) -> None:
        self._work = None
        for usage in work.writer.usage:
            self._turn.record_usage(usage)
        self._turn.emit(ChatCompaction(status="skipped", reason=reason, before_tokens=work.before_tokens))

    def _note_without_effect(self, tokens: int) -> None:
        self._futile_below = tokens + self._limits.max_tokens * GROWTH_PERCENT // 100


@dataclass(frozen=True, slots=True)
class _Saving:
    """The drafts of summaries as they can be appended now. What the model sees before and after them: the tokens of a
    request, and how many entries of the conversation."""

    drafts: tuple[BlockDraft, ...]
    before_tokens: int
    after_tokens: int
    before_entries: int
    after_entries: int


def _measure_saving(now: Snapshot, shrunk: Shrunk) -> _Saving:
    drafts = restamp(now, shrunk.drafts)
    after = now.plus(drafts) if drafts else now
    return _Saving(drafts, now.tokens, after.tokens, len(now.shown), len(after.shown))


async def _result_of(work: _Work) -> Shrunk:
    """Return the result; if the work failed, the result by rules, since a failed summary must not fail the turn."""
    with guarded("compaction", reason=work.reason):
        # Awaiting a cancelled task would cancel this one.
        if not work.task.cancelled():
            return await work.task
    return Shrunk(work.snapshot) if work.reason == "soft" else await _shrink_by_rules(work.snapshot)


async def _shrink_by_rules(snapshot: Snapshot) -> Shrunk:
    return await asyncio.to_thread(shrink_by_rules, snapshot)


async def _cover_by_rules(shrunk: Shrunk, cut: Cut) -> Shrunk:
    """Cover the cut with a summary by rules; unchanged if that summary is not allowed."""
    made, _ = await asyncio.to_thread(lambda: cover(shrunk, build_summary(shrunk.snapshot, cut)))
    return made or shrunk


async def _shrink_softly(snapshot: Snapshot, writer: SummaryWriter) -> Shrunk:
    """Apply only steps that are worth it and lose nothing relevant."""
    shrunk = Shrunk(snapshot)
    for step in SOFT_STEPS:
        cut = await asyncio.to_thread(choose_cut, shrunk.snapshot, step)
        if cut is not None and is_worth(shrunk.snapshot, cut):
            shrunk = await _cover(shrunk, cut, writer)
    return shrunk


async def _shrink_to_fit(snapshot: Snapshot, writer: SummaryWriter) -> Shrunk:
    """Shrink until it fits. A model is called if that is worth it; the last resorts use rules."""
    shrunk = Shrunk(snapshot)
    for step in HARD_STEPS:
        cut = await asyncio.to_thread(choose_cut, shrunk.snapshot, step)
        if cut is None:
            continue
        if step in LAST_RESORTS or not is_worth(shrunk.snapshot, cut):
            shrunk = await _cover_by_rules(shrunk, cut)
        else:
            shrunk = await _cover(shrunk, cut, writer)
    if shrunk.fits:
        return shrunk
    return min(shrunk, await _shrink_by_rules(snapshot), key=lambda made: made.snapshot.tokens)


async def _cover(shrunk: Shrunk, cut: Cut, writer: SummaryWriter) -> Shrunk:
    covered, failures = await asyncio.to_thread(cover, shrunk, await writer.write(shrunk.snapshot, cut))
    if covered is None:
        _log.warning("Rejected the summary", failures=failures)
        return await _cover_by_rules(shrunk, cut)
    return covered
