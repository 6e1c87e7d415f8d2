"""One model call of a round: streams the reply through the codec of the turn to the clients and reads the decision.

`RoundTexts` holds the texts as they were streamed. While a provider is silent or a call is retried, clients are
notified.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Final

import structlog

from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.channels.actions import Decision, Problem
from chat_proc.channels.citations import Citer, build_citer, index_sources
from chat_proc.channels.codec import Codec
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.native_stream import NativeStream
from chat_proc.channels.pieces import (
    AnswerText,
    AnswerWithdrawn,
    ContentText,
    DecisionPiece,
    FieldClosed,
    NotesText,
    ThinkingText,
)
from chat_proc.models.calls import CallTracker, ModelRole, TrackedCall, describe_turn, estimate_call
from chat_proc.models.retry import RetryingModel
from chat_proc.models.roles import DECISION
from chat_proc.turn.leased import LeasedTurn
from everturn.core.cancellation import Stopped, run_until
from everturn.core.threads import call_sized
from everturn.events.model import AnyEvent, ChatDelta, ChatPhase
from everturn.events.turn_view import SHOWN_CHANNELS, WRITE_TOOL, format_of_path, join_thinking
from everturn.events.views import TextFormat
from everturn.models.port import (
    ContextLimitExceeded,
    LanguageModel,
    ModelFailed,
    ModelPiece,
    ModelRequest,
    ModelRetry,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    ToolCallDelta,
)
from everturn.timeline.blocks import REASONING_INSTANCE
from everturn.turns.model import UsageEvent

_log = structlog.get_logger(__name__)

FIRST_AFTER_S: Final = 5.0
"""Silence before the first notice: most models begin sooner."""
EVERY_S: Final = 10.0
JUDGING_COST: Final = 32
"""How much longer it takes to judge a reply than to parse as much JSON, if it is full of code: 16 us a character."""
MIN_CLOSING_S: Final = 120.0
"""How long a closing reply may take, even if the time of the turn is over."""

Emit = Callable[[AnyEvent, int | None], None]


@dataclass(slots=True)
class _Growing:
    marker: str
    format: TextFormat
    artifact: str | None
    first_ts: str
    pieces: list[str] = field(default_factory=lambda: [])
    raw: list[str] = field(default_factory=lambda: [])
    completed: bool = False


class RoundTexts:
    """The texts of one round as streamed to clients; the round's blocks must contain exactly these texts.

    Owned by one round. A text is identified by its channel and instance. `max_thinking_chars` limits all thinking of
    the round together, wherever it comes from; the rest is dropped.
    """

    def __init__(
        self, emit: Emit, round_number: int, now: Callable[[], str], *, max_thinking_chars: int | None = None
    ) -> None:
        self._emit = emit
        self._round = round_number
        self._now = now
        self._texts: dict[tuple[str, int], _Growing] = {}
        self._is_thinking = False
        self._max_thinking_chars = max_thinking_chars
        self._thinking_chars = 0

    def begin(self) -> None:
        """Announce the model call."""
        self._is_thinking = True
        self._emit(ChatPhase(phase="model_called"), self._round)

    def say(
        self,
        channel: str,
        instance: int,
        text: str,
        *,
        marker: str,
        format: TextFormat = "markdown",
        artifact: str | None = None,
        trim_start: bool = False,
        raw: str | None = None,
    ) -> None:
        """Send one more piece; an empty one is ignored. `trim_start` drops blanks before the first character.

        `raw` is the piece as written, if that differs.
        """
        if trim_start and (channel, instance) not in self._texts:
            text = text.lstrip()
        if channel == "thinking":
            text = self._limit_thinking(text)
        if not text and not raw:
            return
        if channel == "answer":
            self._end_thinking()
        growing = self._texts.get((channel, instance))
        if growing is None:
            growing = self._texts[channel, instance] = _Growing(marker, format, artifact, self._now())
        growing.raw.append(text if raw is None else raw)
        if text:
            self._send(channel, instance, growing, text, completed=False)
            growing.pieces.append(text)

    def _limit_thinking(self, text: str) -> str:
        left = None if self._max_thinking_chars is None else max(0, self._max_thinking_chars - self._thinking_chars)
        self._thinking_chars += len(text)
        return text[:left]

    @property
    def has_cut_thinking(self) -> bool:
        """Whether the model has thought more than is kept."""
        return self._max_thinking_chars is not None and self._thinking_chars > self._max_thinking_chars

    def complete(self) -> None:
        """Mark the thinking and all texts as completed."""
        self._end_thinking()
        for (channel, instance), growing in self._texts.items():
            if not growing.completed:
                growing.completed = True
                self._send(channel, instance, growing, "", completed=True)

    def show_again(self, *, without: str) -> None:
        """Send all texts again, after a rewind, but forget those of one channel."""
        self._texts = {key: growing for key, growing in self._texts.items() if key[0] != without}
        self.begin()
        for (channel, instance), growing in self._texts.items():
            text, growing.pieces = "".join(growing.pieces), []
            self._send(channel, instance, growing, text, completed=False)
            growing.pieces.append(text)

    def text(self, channel: str, instance: int = 0) -> str:
        """The text sent so far."""
        growing = self._texts.get((channel, instance))
        return "".join(growing.pieces) if growing else ""

    def first_ts(self, channel: str, instance: int = 0) -> str | None:
        """When its first piece was sent, ISO 8601."""
        growing = self._texts.get((channel, instance))
        return growing.first_ts if growing else None

    def instances(self, channel: str) -> list[int]:
        """The instances of a channel, in order."""
        return sorted(instance for name, instance in self._texts if name == channel)

    @property
    def raw(self) -> dict[tuple[str, int], str]:
        """All texts so far as written, by channel and instance."""
        return {key: "".join(growing.raw) for key, growing in self._texts.items()}

    def _end_thinking(self) -> None:
        if self._is_thinking:
            self._is_thinking = False
            thinking = join_thinking(self.text("thinking", instance) for instance in self.instances("thinking"))
            self._emit(ChatPhase(phase="model_thought", thinking=thinking), self._round)

    def _send(self, channel: str, instance: int, growing: _Growing, text: str, *, completed: bool) -> None:
        delta = ChatDelta(
            channel=channel,
            instance=instance,
            index=len(growing.pieces),
            text=text,
            completed=completed,
            marker=growing.marker,
            format=growing.format,
            artifact=growing.artifact,
        )
        self._emit(delta, self._round)


class WaitingNotice:
    """Notifies clients that a turn waits for its model: after some seconds of silence, and before each retry.

    Owned by one model call, and active inside its `with` block. It costs one timer, not a task for each piece.
    """

    def __init__(
        self, turn: LeasedTurn, round_number: int, *, first_after_s: float = FIRST_AFTER_S, every_s: float = EVERY_S
    ) -> None:
        self._turn = turn
        self._round = round_number
        self._first_after_s = first_after_s
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._is_shown = False

    def __enter__(self) -> "WaitingNotice":
        self._timer = self._loop.call_later(self._first_after_s, self._check_silence)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def note(self, piece: ModelPiece) -> None:
        """Record that a piece of the reply arrived, or that the call is about to be retried."""
        self._heard_at = self._loop.time()
        if isinstance(piece, ModelRetry):
            self._heard_at += piece.wait_s
            retry_in_ms = int(piece.wait_s * 1000)
            phase = ChatPhase(
                phase="model_retrying",
                retry_in_ms=retry_in_ms,
                attempt=piece.attempt,
                max_attempts=piece.max_attempts,
                reason=piece.reason,
            )
            self._turn.emit(phase, self._round)
            self._is_shown = True
        elif self._is_shown:
            self._is_shown = False
            self._turn.emit(ChatPhase(phase="model_replying"), self._round)

    def _check_silence(self) -> None:
        silent_s = self._loop.time() - self._heard_at
        if silent_s >= self._first_after_s:
            self._is_shown = True
            self._turn.emit(ChatPhase(phase="model_waiting", waited_ms=int(silent_s * 1000)), self._round)
            delay_s = self._every_s
        else:
            delay_s = self._first_after_s - silent_s
        self._timer = self._loop.call_later(max(delay_s, 0.01), self._check_silence)


@dataclass(frozen=True, slots=True)
class Generated:
    """The result of one call. `stopped` means that a steer, a cancel or the time limit of the turn ended it, and the
    decision is partial. If the time limit ended a closing reply, or one with a part of the answer, that reply is used
    and `stopped` is False. `switched` means that the model made a native tool call under another codec."""

    decision: Decision
    texts: RoundTexts
    stopped: bool
    switched: bool = False


class Generator:
    """Makes model calls. Learns how many characters a token has; keeps no other state between calls."""

    def __init__(
        self,
        kit: TurnKit,
        parts: LoopDependencies,
        *,
        model: LanguageModel | None = None,
        role: ModelRole = DECISION,
    ) -> None:
        """Without a `model` the kit's deciding one is called. It is retried for less time if there is a fallback."""
        self._tracing = parts.tracing
        self._role: ModelRole = role
        self._failpoints = parts.failpoints
        self._retries = parts.model_retries
        first = model or kit.model
        if kit.fallback is not None and isinstance(first, RetryingModel):
            first = first.before_fallback()
        self._models = (first,) if kit.fallback is None else (first, kit.fallback)
        self._native = kit.native
        self._limits = kit.decisions
        self._wall_time_s = kit.limits.wall_time_s
        self._closing_limits = replace(self._limits, fanout=None, one_thinking=False, stops_early=False)
        self._ratios = kit.ratios

    @property
    def model(self) -> LanguageModel:
        """The model that is called first."""
        return self._models[0]

    async def generate(
        self,
        turn: LeasedTurn,
        request: ModelRequest,
        codec: Codec,
        round_number: int,
        *,
        closing: bool = False,
        hides_answer: bool = False,
    ) -> Generated:
        """Raises the ModelFailed of the first model if no model gives a reply. If the last model fails after a part of
        its answer was shown, that part is returned. A `closing` reply is parsed leniently. With `hides_answer` clients
        don't see the answer of the reply.

        The shown part of a reply that broke off is rewound. The turn records what the calls cost in any case.
        """
        failures: list[ModelFailed] = []
        left_s = self._wall_time_s - turn.spent.leased_s
        # A little later than the limit, so that what comes next finds it reached.
        ends_at = asyncio.get_running_loop().time() + max(left_s, MIN_CLOSING_S if closing else 0.0) + 0.01
        about = {**describe_turn(turn.lease.conversation_id, turn.turn_id), "everturn.round": round_number}
        for model in self._models:
            limits = self._closing_limits if closing else self._limits
            is_last = model is self._models[-1]
            tracker = CallTracker(model.traits, self._role, tracing=self._tracing, turn=about)
            call = _Call(
                model, tracker, turn, request, codec, round_number, limits, closing, hides_answer, is_last, ends_at
            )
            if failures:
                turn.emit(ChatPhase(phase="model_fallback", reason=failures[-1].kind), round_number)
            try:
                return await self._generate_with_retries(call)
            except ContextLimitExceeded:
                raise
            except ModelFailed as failure:
                _log.warning(
                    "Model call failed",
                    model=model.traits.ledger_name,
                    turn_id=turn.turn_id,
                    reason=failure.kind,
                    error=str(failure),
                    provider_text=failure.provider_text,
                )
                failures.append(failure)
            finally:
                for usage in tracker.build_events():
                    turn.record_usage(usage)
        raise failures[0]

    async def _generate_with_retries(self, call: "_Call") -> Generated:
        timeouts = 0
        for tries_left in reversed(range(self._retries.max_broken_replies + 1)):
            reply = _Reply(call, self._native)
            reply.texts.begin()
            try:
                return await self._generate_once(call, reply)
            except ModelFailed as failure:
                timeouts += failure.kind == "timeout"
                stalls_left = self._retries.max_stalled_replies - timeouts
                again = tries_left and failure.partial and failure.retryable and stalls_left > 0
                if not again and call.is_last and reply.texts.text("answer").strip():
                    # The person has already read it: a partial answer is better than none.
                    return await self._build_partial(call, reply, failure)
                if failure.partial:
                    call.turn.rewind()
                if not again:
                    raise
                _log.warning(
                    "Model stream ended early",
                    turn_id=call.turn.turn_id,
                    reason=failure.kind,
                    error=str(failure),
                    provider_text=failure.provider_text,
                )
        raise AssertionError("the last try returns or raises")

    async def _build_partial(self, call: "_Call", reply: "_Reply", failure: ModelFailed) -> Generated:
        _log.warning("Used the partial reply", turn_id=call.turn.turn_id, reason=failure.kind, error=str(failure))
        decision = replace(await reply.finish(interrupted=True), stopped_by="provider_error")
        return Generated(decision, reply.texts, stopped=False, switched=reply.switched)

    async def _generate_once(self, call: "_Call", reply: "_Reply") -> Generated:
        self._failpoints.hit("turn.before_first_token")
        ratio = self._ratios.of(call.model.traits.ledger_name)
        with call.tracker.open_call(call.request, ratio) as reply.tracked:
            ran = await run_until(self._wait_for_stop(call), self._stream(call, reply))
        is_late = isinstance(ran, Stopped) and ran.why
        decision = await reply.finish(interrupted=isinstance(ran, Stopped))
        if is_late:
            decision = replace(decision, stopped_by="time_limit")
        # Of a late reply only an answer is used, unless it is the closing one.
        is_used = is_late and (call.closing or bool(reply.texts.text("answer").strip()))
        stopped = isinstance(ran, Stopped) and not is_used
        return Generated(decision, reply.texts, stopped, reply.switched)

    async def _wait_for_stop(self, call: "_Call") -> bool:
        """Return when the reply has to end: False after a steer or a cancel, True if the time of the turn is over."""
        limit = asyncio.timeout_at(call.ends_at)
        try:
            async with limit:
                await call.turn.inbox.wait_for_control()
        except TimeoutError:
            if not limit.expired():
                raise
        return limit.expired()

    def estimate_lost_call(self, request: ModelRequest) -> UsageEvent:
        """Usage of a call that was lost with its worker: its input was paid, its output is unknown."""
        traits = self.model.traits
        return estimate_call(traits, self._role, request, self._ratios.of(traits.ledger_name))

    async def _stream(self, call: "_Call", reply: "_Reply") -> None:
        with call.turn.activity.open_call("model call"), WaitingNotice(call.turn, call.round) as notice:
            await self._read(call, reply, notice)

    async def _read(self, call: "_Call", reply: "_Reply", notice: WaitingNotice) -> None:
        async with aclosing(call.model.generate(call.request)) as pieces:
            async for piece in pieces:
                notice.note(piece)
                reply.tracked.note(piece)
                match piece:
                    case TextDelta(text):
                        reply.take(text)
                        self._failpoints.hit("turn.mid_stream")
                        if reply.capped:
                            return
                    case ReasoningDelta(text):
                        reply.think(text)
                    case ToolCallDelta():
                        reply.take_call(piece)
                        self._failpoints.hit("turn.mid_stream")
                        if reply.capped:
                            return
                    case ModelRetry():
                        """Reported by the notice."""
                    case ReplyFinished():
                        self._ratios.learn(call.model.traits.ledger_name, call.request, piece.usage)


@dataclass(frozen=True, slots=True)
class _Call:
    """The request and its model."""

    model: LanguageModel
    tracker: CallTracker
    turn: LeasedTurn
    request: ModelRequest
    codec: Codec
    round: int
    limits: DecisionLimits
    closing: bool
    hides_answer: bool
    is_last: bool
    """Whether no other model is left to try."""
    ends_at: float
    """When the time of the turn is over, by the clock of the event loop."""


class _Reply:
    """One reply being received."""

    def __init__(self, call: _Call, native: Codec | None) -> None:
        turn = call.turn
        self._call = call
        self._turn = turn
        self._native = native
        self._reader = call.codec.open_reader(call.limits, turn.pool.rows, closing=call.closing)
        self._sources = index_sources(turn.pool.rows)
        self._written: dict[int, _Written] = {}
        self.texts = RoundTexts(turn.emit, call.round, turn.now, max_thinking_chars=call.limits.max_thinking_chars)
        self.switched = False
        self.tracked: TrackedCall
        """Set when the call begins."""
        self._notes: dict[int, int] = {}
        """Notes are numbered as they appear; an action without notes has no number."""

    @property
    def capped(self) -> bool:
        """Whether the rest of the reply is ignored."""
        return self._reader.is_over

    def think(self, text: str) -> None:
        self.texts.say("thinking", REASONING_INSTANCE, text, marker="thinking", trim_start=True)

    def take(self, text: str) -> None:
        for piece in self._reader.feed(text):
            self._show(piece)

    def take_call(self, delta: ToolCallDelta) -> None:
        if not isinstance(self._reader, NativeStream):
            if self._native is None or self._call.closing:
                return
            self._switch(self._native)
        if isinstance(self._reader, NativeStream):
            for piece in self._reader.feed_call(delta):
                self._show(piece)

    def _switch(self, native: Codec) -> None:
        """Read the rest of the reply as one in the provider's own form. Only what was shown as thinking is kept."""
        if self.texts.text("answer"):
            self._show(AnswerWithdrawn())
        self._reader = native.open_reader(self._call.limits, self._turn.pool.rows)
        self.switched = True

    async def finish(self, *, interrupted: bool) -> Decision:
        reason = self.tracked.finish.reason if self.tracked.finish else "stop"
        end = partial(self._reader.finish, reason, interrupted=interrupted)
        pieces, decision = await call_sized(JUDGING_COST * self.tracked.chars, end)
        for piece in pieces:
            self._show(piece)
        if self.texts.has_cut_thinking:
            sentence = f"Keep your thinking under {self._call.limits.max_thinking_chars} characters."
            remark = Problem("thinking_too_long", sentence, fatal=False)
            return replace(decision, problems=(*decision.problems, remark))
        return decision

    def _show(self, piece: DecisionPiece) -> None:
        match piece:
            case ThinkingText():
                self.texts.say("thinking", piece.instance, piece.text, marker="thinking", trim_start=True)
            case NotesText():
                ordinal = self._notes.setdefault(piece.instance, len(self._notes))
                self.texts.say("notes", ordinal, piece.text, marker="timeline_text")
            case AnswerText() | AnswerWithdrawn() if self._call.hides_answer:
                """The synthesis writes the answer that clients see."""
            case AnswerText():
                self.texts.say("answer", 0, piece.text, marker="answer")
            case AnswerWithdrawn():
                self._turn.rewind()
                self.texts.show_again(without="answer")
            case ContentText():
                self._show_content(piece)
            case FieldClosed(field="content") if piece.instance in self._written:
                self._show_written(piece.instance, self._written[piece.instance].cite.finish(), "")
            case _:
                """Programs and marks are shown as steps once the decision is committed."""

    def _show_content(self, piece: ContentText) -> None:
        """Written content is shown once its path is known: if the model writes the content first, it is not
        streamed."""
        channel, path = piece.channel or "", piece.path
        if piece.tool_id != WRITE_TOOL or channel not in SHOWN_CHANNELS or not path:
            return
        if piece.instance not in self._written:
            self._written[piece.instance] = _Written(channel, path, build_citer(self._sources, format_of_path(path)))
        self._show_written(piece.instance, self._written[piece.instance].cite.feed(piece.text), piece.text)

    def _show_written(self, instance: int, shown: str, raw: str) -> None:
        written = self._written[instance]
        self.texts.say(
            written.channel,
            instance,
            shown,
            marker=written.channel,
            format=format_of_path(written.path),
            artifact=written.path,
            raw=raw,
        )


@dataclass(frozen=True, slots=True)
class _Written:
    """A file being written: where it is shown, and the citer that replaces its citations."""

    channel: str
    path: str
    cite: Citer
