"""The usage of a reply: what the provider counted, or our estimate."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from chat_proc.models.cards import price_usage
from chat_proc.models.replies import ContentFiltered
from everturn.models.port import (
    ModelPiece,
    ModelRequest,
    ModelTraits,
    ModelUsage,
    ReplyFinished,
    count_chars,
)
from everturn.models.tokens import estimate_usage

_log = structlog.get_logger(__name__)

MAX_CONTEXTS = 4
"""A count above this many times the context is false, unless it is near our estimate: the context in a card can be
smaller than that of the model."""


class UsageChecker:
    """Checks the counts of one model, and logs the first false ones."""

    def __init__(self, traits: ModelTraits) -> None:
        self._traits = traits
        self._has_logged = False

    def complete(self, counted: ModelUsage | None, request: ModelRequest, reply_chars: int) -> ModelUsage:
        """The provider's counts, or our estimate if there are none or they can't be true; with the cost."""
        if counted is None or not _is_possible(counted, self._traits.context_tokens):
            estimate = estimate_usage(request, reply_chars)
            if counted is None:
                counted = estimate
            elif not _is_possible(counted, estimate.input_tokens + estimate.output_tokens):
                self._log(counted)
                counted = estimate
        return price_usage(counted, self._traits)

    async def end_filtered(
        self, pieces: AsyncGenerator[ModelPiece, None], request: ModelRequest
    ) -> AsyncGenerator[ModelPiece, None]:
        """The pieces of a reply, which ends as filtered if a filter rejected it or its request. Closing it closes
        `pieces`. Azure charges for such a request, so it counts as read."""
        chars = 0
        async with aclosing(pieces):
            try:
                async for piece in pieces:
                    chars += count_chars(piece)
                    yield piece
            except ContentFiltered as filtered:
                _log.info(
                    "The provider filtered a request",
                    model=self._traits.ledger_name,
                    provider_text=filtered.provider_text,
                )
                yield ReplyFinished("content_filter", self.complete(None, request, chars))

    def _log(self, counted: ModelUsage) -> None:
        if not self._has_logged:
            self._has_logged = True
            _log.warning(
                "The provider's token counts can't be true, so they are estimated",
                model=self._traits.ledger_name,
                input_tokens=counted.input_tokens,
                output_tokens=counted.output_tokens,
                context_tokens=self._traits.context_tokens,
            )


def _is_possible(counted: ModelUsage, context_tokens: int) -> bool:
    return max(counted.input_tokens, counted.output_tokens) <= MAX_CONTEXTS * context_tokens
