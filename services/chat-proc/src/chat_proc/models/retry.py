"""Wraps a LanguageModel with time limits, a size limit and retries.

`ModelRetryLimits` holds the limits of one call and of the replies of a round. What a summary tries again is in
`agent/compaction.py`.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import structlog

from everturn.core.cancellation import keep_cancellation
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
)

_log = structlog.get_logger(__name__)

MAX_PIECE_CHARS = 2_048
"""A longer piece is split: processing one part takes at most about 4 ms, whatever its content."""
MAX_HELD_S = 0.005
"""How long available pieces are yielded before the event loop runs other turns of the worker and its heartbeat."""


@dataclass(frozen=True, slots=True)
class ModelRetryLimits:
    """How long one call may take and how long failed calls are retried. Times in seconds.

    `window_s` counts from the first failure: long enough for a gateway restart or a rate limit per minute. `budget_s`
    counts from the first attempt; no attempt starts after it, whatever the provider requests.
    """

    first_piece_timeout_s: float = 60.0
    idle_timeout_s: float = 60.0
    reply_timeout_s: float = 900.0
    max_reply_chars: int = 1_000_000
    max_attempts: int = 12
    max_timeouts: int = 2
    """Attempts that may time out in silence: each costs `first_piece_timeout_s`."""
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


@dataclass(slots=True)
class _Reply:
    """What one attempt has yielded to the caller."""

    deadline_s: float
    pieces: int = 0
    chars: int = field(default=0)


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
        paused_at_s = began_s
        timeouts = likely_permanent = 0
        for attempt in range(1, self._limits.max_attempts + 1):
            try:
                async with aclosing(self._generate_once(request)) as pieces:
                    while (piece := await _next_of(pieces)) is not None:
                        for part in _cut(piece):
                            # Otherwise a provider that is faster than this worker would block the event loop.
                            if self._timing.clock() - paused_at_s > MAX_HELD_S:
                                await asyncio.sleep(0)
                                paused_at_s = self._timing.clock()
                            yield part
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
                    model=self.traits.name,
                    attempt=attempt,
                    wait_s=wait_s,
                    reason=failure.kind,
                    error=str(failure),
                    provider_text=failure.provider_text,
                )
                again = ModelRetry(wait_s, attempt + 1, last_attempt, failure.kind)
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
        reply = _Reply(self._timing.clock() + self._limits.reply_timeout_s)
        async with aclosing(self._model.generate(request)) as pieces:
            try:
                while True:
                    piece = await self._next_piece(pieces, reply)
                    reply.pieces += 1
                    yield piece
                    if isinstance(piece, ReplyFinished):
                        return
            except ModelFailed as failure:
                failure.partial = reply.pieces > 0
                raise

    async def _next_piece(self, pieces: AsyncGenerator[ModelPiece, None], reply: _Reply) -> ModelPiece:
        limits = self._limits
        idle_s = limits.idle_timeout_s if reply.pieces else limits.first_piece_timeout_s
        left_s = reply.deadline_s - self._timing.clock()
        try:
            async with asyncio.timeout(min(idle_s, left_s)):
                piece = await anext(pieces)
        except TimeoutError as error:
            raise ModelFailed(
                "The reply took too long." if left_s <= idle_s else f"The model was silent for {idle_s:g} s.",
                kind="timeout",
                retryable=left_s > idle_s,
            ) from error
        except StopAsyncIteration as error:
            raise ModelFailed("The reply was cut off before its end.", kind="cut_reply", retryable=True) from error
        if isinstance(piece, TextDelta | ReasoningDelta):
            reply.chars += len(piece.text)
        if reply.chars > limits.max_reply_chars:
            raise ModelFailed(f"The reply is longer than {limits.max_reply_chars} characters.", kind="reply_too_long")
        return piece


def _cut(piece: ModelPiece) -> Iterator[ModelPiece]:
    if not isinstance(piece, TextDelta | ReasoningDelta) or len(piece.text) <= MAX_PIECE_CHARS:
        yield piece
        return
    for at in range(0, len(piece.text), MAX_PIECE_CHARS):
        yield replace(piece, text=piece.text[at : at + MAX_PIECE_CHARS])


async def _next_of(pieces: AsyncGenerator[ModelPiece, None]) -> ModelPiece | None:
    """The next piece, None at the end. An adapter's error in place of a cancellation is not retried."""
    with keep_cancellation():
        return await anext(pieces, None)
