"""Wraps a LanguageModel with time limits, a size limit and retries, and gathers the pieces of a fast one.

`ModelRetryLimits` holds the limits of one call and of the replies of a round. What a summary tries again is in
`agent/compaction.py`.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from itertools import groupby

import structlog

from chat_proc.models.streams import REPLY_TIMEOUT_S, TimeSlice, report_bytes, split_text
from everturn.core.cancellation import discard_errors, end_tasks
from everturn.models.port import (
    LanguageModel,
    ModelFailed,
    ModelPiece,
    ModelRequest,
    ModelRetry,
    ModelTraits,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    ToolCallDelta,
)

_log = structlog.get_logger(__name__)

GATHER_S = 0.004
"""A piece is yielded at the earliest this long after the one before it, and those that arrive meanwhile are joined to
it. The pieces of a model that writes 50 tokens a second come every 20 ms, so they don't wait."""
FAST_GATHER_S = 0.016
"""The same while a model writes faster than anyone can read: a screen is refreshed about as often."""
FAST_PIECES = 4
"""A model that sends so many pieces while they gather is fast."""
GATHER_PER_DELAY = 4
"""While the event loop is busy, pieces gather this many times as long as they were taken too late, so that a reply
takes fewer of its iterations."""
MAX_GATHER_S = 0.1


@dataclass(frozen=True, slots=True)
class ModelRetryLimits:
    """How long one call may take and how long failed calls are retried. Times in seconds.

    `window_s` counts from the first failure: long enough for a gateway restart or a rate limit per minute. `budget_s`
    counts from the first attempt; no attempt starts after it, whatever the provider requests.
    """

    first_token_timeout_s: float = 60.0
    """How long the server may send nothing before the first piece of a reply. Anything that it sends renews this time,
    if only a comment. Servers of the operator have another limit: `providers.try_find_first_token_timeout_s`."""
    idle_timeout_s: float = 60.0
    """The same after the first piece."""
    reply_timeout_s: float = REPLY_TIMEOUT_S
    max_reply_chars: int = 1_000_000
    max_attempts: int = 12
    max_timeouts: int = 2
    """Attempts that may time out in silence: each costs `first_token_timeout_s`."""
    max_likely_permanent: int = 3
    """Attempts that may fail in a way that a wrong setting explains better (`ModelFailed.likely_permanent`)."""
    window_s: float = 60.0
    budget_s: float = 180.0
    first_backoff_s: float = 0.5
    max_backoff_s: float = 15.0
    max_retry_after_s: float = 60.0
    """If a provider requests a longer wait, the call fails instead."""
    max_broken_replies: int = 2
    """Replies that may break off after a part was shown: `agent.generation` rewinds the part and asks again."""
    max_stalled_replies: int = 2
    """Of these, those that may break off in silence: each costs `idle_timeout_s`."""

    def before_fallback(self) -> "ModelRetryLimits":
        """Shorter limits for a model with a fallback."""
        return replace(self, window_s=self.window_s / 4, max_timeouts=1)


@dataclass(frozen=True, slots=True)
class RetryTiming:
    """Injected time and randomness: monotonic seconds, a sleep in seconds, a random number in [0, 1)."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


class RetryingModel:
    """`model` with limits and retries.

    Nothing is retried once a piece has been yielded, because the caller may have shown it. Such a failure is raised
    with `partial=True` and the caller decides.
    """

    def __init__(self, model: LanguageModel, *, limits: ModelRetryLimits, timing: RetryTiming | None = None) -> None:
        self._model = model
        self._limits = limits
        self._timing = timing or RetryTiming()

    @property
    def traits(self) -> ModelTraits:
        return self._model.traits

    def before_fallback(self) -> "RetryingModel":
        """The same model with shorter limits, because another one can answer instead."""
        return RetryingModel(self._model, limits=self._limits.before_fallback(), timing=self._timing)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """Stream one reply, after as many attempts as the limits allow."""
        began_s = self._timing.clock()
        failed_at_s: float | None = None
        timeouts = likely_permanent = 0
        for attempt in range(1, self._limits.max_attempts + 1):
            try:
                async with aclosing(self._generate_once(request)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            except ModelFailed as failure:
                failed_at_s = self._timing.clock() if failed_at_s is None else failed_at_s
                timeouts += failure.kind == "timeout"
                likely_permanent += failure.likely_permanent
                last_attempt = self._limits.max_attempts
                if failure.kind == "timeout":
                    last_attempt = min(last_attempt, attempt + self._limits.max_timeouts - timeouts)
                if failure.likely_permanent:
                    last_attempt = min(last_attempt, attempt + self._limits.max_likely_permanent - likely_permanent)
                wait_s = self._try_wait_before(attempt + 1, failure, began_s=began_s, failed_at_s=failed_at_s)
                if wait_s is None or attempt >= last_attempt:
                    raise
                _log.warning(
                    "Retrying the model call",
                    model=self.traits.ledger_name,
                    attempt=attempt,
                    wait_s=wait_s,
                    reason=failure.kind,
                    error=str(failure),
                    provider_text=failure.provider_text,
                )
                again = ModelRetry(wait_s, attempt + 1, last_attempt, failure.kind, failure.abandoned)
            yield again
            await self._timing.sleep(again.wait_s)

    def _try_wait_before(
        self, attempt: int, failure: ModelFailed, *, began_s: float, failed_at_s: float
    ) -> float | None:
        """Seconds to wait before this attempt, or None if it must not be made."""
        limits, now_s = self._limits, self._timing.clock()
        if failure.partial or not failure.retryable:
            return None
        if failure.kind != "timeout" and now_s > failed_at_s + limits.window_s:
            return None
        backoff_s = min(limits.max_backoff_s, limits.first_backoff_s * 2 ** (attempt - 2))
        wait_s = backoff_s * (0.5 + self._timing.chance() / 2)
        if failure.retry_after_s is not None:
            if failure.retry_after_s > limits.max_retry_after_s:
                return None
            wait_s += failure.retry_after_s  # the jitter remains: many workers got the same time
        return wait_s if now_s + wait_s < began_s + limits.budget_s else None

    async def _generate_once(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """One attempt under the time and size limits; every failure states whether pieces were yielded."""
        attempt = _Attempt(self._model, request, self._limits, self._timing)
        reading = asyncio.create_task(attempt.read(), name="model-reply")
        time_slice = TimeSlice(self._timing.clock)
        try:
            while not attempt.is_taken:
                await self._wait_for_pieces(attempt)
                for piece in attempt.take():
                    await time_slice.give_way()
                    yield piece
            await reading
        except ModelFailed as failure:
            failure.partial, failure.abandoned = attempt.has_yielded, not reading.done()
            raise
        finally:
            await end_tasks(reading)
            discard_errors(reading)  # an adapter may fail in place of its cancellation

    async def _wait_for_pieces(self, attempt: "_Attempt") -> None:
        limits = self._limits
        idle_s = limits.idle_timeout_s if attempt.has_yielded else limits.first_token_timeout_s
        left_s = attempt.deadline_s - self._timing.clock()
        if left_s <= 0:
            # A provider that always has more is never waited for.
            raise ModelFailed("The reply took too long.", kind="timeout")
        began_s = asyncio.get_running_loop().time()
        heard_s, ends_s = began_s, began_s + left_s
        while True:
            try:
                async with asyncio.timeout_at(min(heard_s + idle_s, ends_s)):
                    await attempt.arrived.wait()
                break
            except TimeoutError as error:
                if ends_s <= heard_s + idle_s:
                    raise ModelFailed("The reply took too long.", kind="timeout") from error
                if attempt.heard_s <= heard_s:
                    detail = f"The model was silent for {idle_s:g} s."
                    raise ModelFailed(detail, kind="timeout", retryable=True) from error
                heard_s = attempt.heard_s
        await attempt.gather()


class _Attempt:
    """One request, whose reply is read by a task of its own, and taken by the caller: what arrives while the caller is
    busy, or soon after it took something, is joined."""

    def __init__(
        self, model: LanguageModel, request: ModelRequest, limits: ModelRetryLimits, timing: RetryTiming
    ) -> None:
        self._model = model
        self._request = request
        self._max_chars = limits.max_reply_chars
        self._clock = timing.clock
        self._loop = asyncio.get_running_loop()
        self._pieces: list[ModelPiece] = []
        self._arrived_s = 0.0
        self._gather_until_s = 0.0
        self._ended = asyncio.Event()
        self.deadline_s = timing.clock() + limits.reply_timeout_s
        self.heard_s = self._loop.time()
        """When a part of the HTTP body arrived last."""
        self.arrived = asyncio.Event()
        """Set while pieces wait to be taken, and when the reply has ended."""
        self.has_yielded = False

    @property
    def is_taken(self) -> bool:
        """Whether the reply has ended and all its pieces were taken."""
        return self._ended.is_set() and not self._pieces

    async def read(self) -> None:
        """Read the reply to its end, in a task of its own. Raises ModelFailed."""
        report_bytes.set(self._note_bytes)
        try:
            finish = await self._read_texts()
            # Only once the model's generator is closed, because the caller cancels what is left when it has this.
            self._add(finish)
        finally:
            self._ended.set()
            self.arrived.set()

    def _note_bytes(self) -> None:
        self.heard_s = self._loop.time()

    async def _read_texts(self) -> ReplyFinished:
        chars = 0
        time_slice = TimeSlice(self._clock)
        async with aclosing(self._model.generate(self._request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ReplyFinished):
                    return piece
                match piece:
                    case TextDelta(text) | ReasoningDelta(text):
                        chars += len(text) or 1
                    case ToolCallDelta():
                        chars += len(piece.name) + len(piece.arguments) or 1
                    case ModelRetry():
                        """It is not part of the reply."""
                if chars > self._max_chars:
                    detail = f"The reply is longer than {self._max_chars} characters."
                    raise ModelFailed(detail, kind="reply_too_long")
                self._add(piece)
                # Otherwise a provider that is faster than this worker would block the event loop.
                await time_slice.give_way()
        raise ModelFailed("The reply was cut off before its end.", kind="cut_reply", retryable=True)

    def _add(self, piece: ModelPiece) -> None:
        if not self._pieces:
            self._arrived_s = self._loop.time()
            self.arrived.set()
        self._pieces.append(piece)

    async def gather(self) -> None:
        """Wait until what has arrived may be taken."""
        left_s = self._gather_until_s - self._loop.time()
        if left_s > 0 and not self._ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._ended.wait()

    def take(self) -> Iterator[ModelPiece]:
        """The pieces that have arrived, with texts joined."""
        taken, self._pieces = self._pieces, []
        if not self._ended.is_set():
            self.arrived.clear()
        self.has_yielded = self.has_yielded or bool(taken)
        now_s = self._loop.time()
        delay_s = now_s - max(self._arrived_s, self._gather_until_s)
        gather_s = FAST_GATHER_S if len(taken) >= FAST_PIECES else GATHER_S
        self._gather_until_s = now_s + max(gather_s, min(MAX_GATHER_S, GATHER_PER_DELAY * delay_s))
        return _join(taken)


def _join(pieces: Sequence[ModelPiece]) -> Iterator[ModelPiece]:
    """Join the texts of neighbours of the same kind and call, and split those that are too long."""
    for (kind, _), group in groupby(pieces, _describe_kind):
        if kind is TextDelta or kind is ReasoningDelta:
            text = "".join(piece.text for piece in group if isinstance(piece, TextDelta | ReasoningDelta))
            for part in split_text(text):
                yield kind(part)
        elif kind is ToolCallDelta:
            first, *others = (piece for piece in group if isinstance(piece, ToolCallDelta))
            begin, *rest = split_text("".join((first.arguments, *(piece.arguments for piece in others))))
            yield replace(first, arguments=begin)
            for part in rest:
                yield ToolCallDelta(first.index, part)
        else:
            yield from group


def _describe_kind(piece: ModelPiece) -> tuple[type[ModelPiece], int]:
    """Equal for pieces that may be joined: only the first piece of a call has a name."""
    return type(piece), piece.index if isinstance(piece, ToolCallDelta) else 0
