"""Telemetry of every model call: a span by OpenTelemetry's conventions for generative AI, its duration, its usage and
its failure. It contains no text of the conversation."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Literal

from chat_proc.models.cards import price_usage
from everturn.core.metrics import MODEL_CALL_SECONDS, MODEL_CALLS_FAILED
from everturn.core.tracing import NO_TRACING, Attributes, Span, Tracing
from everturn.models.port import (
    FinishReason,
    ModelFailed,
    ModelPiece,
    ModelRequest,
    ModelRetry,
    ModelTraits,
    ModelUsage,
    ReplyFinished,
    count_chars,
)
from everturn.models.tokens import FIRST_RATIO, CharsPerToken, estimate_usage
from everturn.turns.model import UsageEvent

ModelRole = Literal["coding", "decision", "planning", "selection", "summary", "synthesis", "title", "tool", "workflow"]
"""The purpose of a call, as named in the usage ledger."""


@contextmanager
def open_call(
    tracing: Tracing, traits: ModelTraits, request: ModelRequest, *, role: ModelRole, turn: Attributes
) -> Generator[Span]:
    """The span of one call, from its request to the end of its reply; `turn` is from `describe_turn`.

    A ModelFailed or TimeoutError that leaves the block counts as a failed call. A cancelled call does not: we ended it
    ourselves.
    """
    with (
        MODEL_CALL_SECONDS.labels(traits.ledger_name, role).time(),
        tracing.span(f"chat {traits.name}", _describe(traits, request, role, turn), kind="client") as span,
    ):
        try:
            yield span
        except (ModelFailed, TimeoutError) as failure:
            MODEL_CALLS_FAILED.labels(traits.ledger_name, role).inc()
            span.fail(failure.kind if isinstance(failure, ModelFailed) else "timeout")
            raise


def describe_turn(conversation_id: str, turn_id: str) -> Attributes:
    """Attributes that identify the turn."""
    return {"gen_ai.conversation.id": conversation_id, "everturn.turn.id": turn_id}


def describe_reply(reason: FinishReason, model: str | None, response_id: str | None) -> Attributes:
    """How a reply ended, and the provider's names of the model and the reply."""
    attributes: dict[str, str | Sequence[str]] = {"gen_ai.response.finish_reasons": [reason]}
    if model is not None:
        attributes["gen_ai.response.model"] = model
    if response_id is not None:
        attributes["gen_ai.response.id"] = response_id
    return attributes


def describe_usage(usage: UsageEvent) -> Attributes:
    """The usage of a call as attributes."""
    attributes: dict[str, str | int | float | bool] = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "everturn.usage.estimated": usage.estimated,
    }
    return {**attributes, "everturn.usage.cost_usd": usage.cost_usd} if usage.cost_known else attributes


def _describe(traits: ModelTraits, request: ModelRequest, role: ModelRole, turn: Attributes) -> Attributes:
    server = {"server.address": traits.server_address} if traits.server_address else {}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": traits.provider,
        "gen_ai.request.model": traits.name,
        "gen_ai.request.max_tokens": request.max_output_tokens,
        "everturn.model.role": role,
        **server,
        **turn,
    }


def build_usage_event(model: str, role: str, usage: ModelUsage) -> UsageEvent:
    """Build the entry; `role` is the purpose of the call."""
    return UsageEvent(
        model=model,
        role=role,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_usd=usage.cost_usd,
        estimated=usage.estimated,
        cost_known=usage.cost_known,
    )


def estimate_call(traits: ModelTraits, role: ModelRole, request: ModelRequest, ratio: CharsPerToken) -> UsageEvent:
    """The entry of a call that was lost with its worker: its input was paid, its output is unknown."""
    usage = price_usage(estimate_usage(request, 0, ratio), traits)
    return build_usage_event(traits.ledger_name, role, usage)


def sum_usages(usages: Sequence[ModelUsage]) -> ModelUsage:
    """The sum, which is `estimated` if a part of it is, and whose cost is known if that of each part is."""
    return ModelUsage(
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        cache_read_tokens=sum(usage.cache_read_tokens for usage in usages),
        cache_write_tokens=sum(usage.cache_write_tokens for usage in usages),
        cost_usd=sum(usage.cost_usd for usage in usages),
        estimated=any(usage.estimated for usage in usages),
        cost_known=all(usage.cost_known for usage in usages),
    )


class TrackedCall:
    """One call of a CallTracker."""

    def __init__(
        self,
        traits: ModelTraits,
        request: ModelRequest,
        ratio: CharsPerToken,
        note_piece: Callable[[ModelPiece], None] | None,
        monotonic: Callable[[], float],
    ) -> None:
        self._traits = traits
        self._request = request
        self._ratio = ratio
        self._note_piece = note_piece
        self._monotonic = monotonic
        self._abandoned = 0
        self._sent_at = monotonic()
        self._ended_at: float | None = None
        self._has_failed = False
        self.chars = 0
        """Of texts, reasoning and calls so far."""
        self.finish: ReplyFinished | None = None

    def note(self, piece: ModelPiece) -> None:
        """Count a piece of the reply, or an attempt before it."""
        if self._note_piece is not None:
            self._note_piece(piece)
        self.chars += count_chars(piece)
        match piece:
            case ReplyFinished():
                self.finish = piece
            case ModelRetry(abandoned=abandoned, wait_s=wait_s):
                self._abandoned += abandoned
                self._sent_at = self._monotonic() + wait_s
            case _:
                """It is part of the reply."""

    def note_failure(self, failure: ModelFailed) -> None:
        """A provider that failed charges for what it sent, if anything; one that we left charges in any case."""
        self._has_failed = not failure.abandoned

    def note_end(self) -> None:
        """Record that nothing is sent or received any more."""
        self._ended_at = self._monotonic()

    def build_usages(self) -> list[ModelUsage]:
        """The usage of each attempt so far that the provider charges for, estimated if it has not ended."""
        usages = [self._estimate(0) for _ in range(self._abandoned)]
        if self.finish is not None:
            usages.append(self.finish.usage)
        elif self.chars or not (self._has_failed or self._is_waiting):
            usages.append(self._estimate(self.chars))
        return usages

    @property
    def _is_waiting(self) -> bool:
        """Whether the next attempt was not sent yet."""
        return (self._monotonic() if self._ended_at is None else self._ended_at) < self._sent_at

    def _estimate(self, reply_chars: int) -> ModelUsage:
        return price_usage(estimate_usage(self._request, reply_chars, self._ratio), self._traits)


class CallTracker:
    """The calls that one task makes to a model, one after the other: traces each, and knows what they cost so far.

    The owner of the task keeps the tracker, so that it can record the usage of a task that was cancelled.
    """

    def __init__(
        self,
        traits: ModelTraits,
        role: ModelRole,
        *,
        tracing: Tracing = NO_TRACING,
        turn: Attributes | None = None,
        note_request: Callable[[ModelRequest], None] | None = None,
        note_piece: Callable[[ModelPiece], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`note_request` is called with each request before it is sent, `note_piece` with each piece that arrives."""
        self._traits = traits
        self._role: ModelRole = role
        self._tracing = tracing
        self._turn = turn or {}
        self._note_request = note_request
        self._note_piece = note_piece
        self._monotonic = monotonic
        self._calls: list[TrackedCall] = []

    @property
    def count(self) -> int:
        """How many calls were made, failed ones included."""
        return len(self._calls)

    @contextmanager
    def open_call(self, request: ModelRequest, ratio: CharsPerToken = FIRST_RATIO) -> Generator[TrackedCall]:
        """The call that sends `request`, from before it to the end of its reply, like the function `open_call`. `ratio`
        is for estimates of what it costs."""
        if self._note_request is not None:
            self._note_request(request)
        call = TrackedCall(self._traits, request, ratio, self._note_piece, self._monotonic)
        self._calls.append(call)
        with open_call(self._tracing, self._traits, request, role=self._role, turn=self._turn) as span:
            try:
                yield call
            except ModelFailed as failure:
                call.note_failure(failure)
                raise
            finally:
                call.note_end()
                if (finish := call.finish) is not None:
                    span.note(describe_reply(finish.reason, finish.response_model, finish.response_id))
                if usages := call.build_usages():
                    span.note(describe_usage(self._build_event(sum_usages(usages))))

    def build_events(self) -> tuple[UsageEvent, ...]:
        """The ledger entries of all calls so far, one for each attempt; a call that is still running is estimated."""
        return tuple(map(self._build_event, self._build_usages()))

    def sum_usage(self) -> ModelUsage:
        """The usage of all calls so far."""
        return sum_usages(self._build_usages())

    def _build_usages(self) -> list[ModelUsage]:
        return [usage for call in self._calls for usage in call.build_usages()]

    def _build_event(self, usage: ModelUsage) -> UsageEvent:
        return build_usage_event(self._traits.ledger_name, self._role, usage)
