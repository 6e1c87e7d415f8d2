"""How many tokens a request and its reply are, where no provider has counted them."""

from everturn.model.llm.prompts import MediaPart, ModelRequest, TextPart
from everturn.model.llm.tokens import CharsPerToken, estimate_media_tokens
from everturn.ports.language_model import ModelUsage


def estimate_request(request: ModelRequest, ratio: CharsPerToken) -> int:
    """Estimated input tokens of a request, media included."""
    return ratio.tokens_for(count_chars(request)) + count_media_tokens(request)


def estimate_usage(request: ModelRequest, reply_chars: int) -> ModelUsage:
    """The usage of a whole reply whose provider reported none, as some compatible servers do."""
    ratio = CharsPerToken()
    return ModelUsage(estimate_request(request, ratio), ratio.tokens_for(reply_chars), estimated=True)


def count_media_tokens(request: ModelRequest) -> int:
    """Rough tokens of all images and PDFs."""
    parts = (part for message in request.messages for part in message.parts)
    return sum(estimate_media_tokens(part.mime, len(part.data)) for part in parts if isinstance(part, MediaPart))


def count_chars(request: ModelRequest) -> int:
    """Characters of all text parts."""
    return sum(len(part.text) for message in request.messages for part in message.parts if isinstance(part, TextPart))
