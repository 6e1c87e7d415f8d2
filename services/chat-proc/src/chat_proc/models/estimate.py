"""Estimates the tokens of a request and its reply, if no provider has counted them; the characters per token are
learned from the counts of providers."""

from everturn.models.port import MediaPart, ModelRequest, ModelUsage, TextPart
from everturn.models.tokens import CharsPerToken, estimate_media_tokens


def estimate_request(request: ModelRequest, ratio: CharsPerToken) -> int:
    """Estimated input tokens of a request, media included."""
    return ratio.tokens_for(count_chars(request)) + count_media_tokens(request)


def estimate_usage(request: ModelRequest, reply_chars: int) -> ModelUsage:
    """The usage of a whole reply whose provider reported none, as some compatible servers do."""
    ratio = CharsPerToken()
    return ModelUsage(estimate_request(request, ratio), ratio.tokens_for(reply_chars), estimated=True)


def count_media_tokens(request: ModelRequest) -> int:
    """Estimated tokens of all images and PDFs."""
    parts = (part for message in request.messages for part in message.parts)
    return sum(estimate_media_tokens(part.mime, len(part.data)) for part in parts if isinstance(part, MediaPart))


def count_chars(request: ModelRequest) -> int:
    """Characters of all text parts."""
    return sum(len(part.text) for message in request.messages for part in message.parts if isinstance(part, TextPart))


class LearnedRatios:
    """One ratio for each model name. Only `learn` changes them."""

    def __init__(self) -> None:
        self._by_model: dict[str, CharsPerToken] = {}

    def of(self, model: str) -> CharsPerToken:
        """The ratio learned so far; the default for a model that has not answered yet."""
        return self._by_model.get(model, CharsPerToken())

    def learn(self, model: str, request: ModelRequest, usage: ModelUsage) -> None:
        """Learn from a call that the provider counted; our own estimates are ignored."""
        if not usage.estimated:
            text_tokens = usage.input_tokens - count_media_tokens(request)
            self._by_model[model] = self.of(model).learned(count_chars(request), text_tokens)
