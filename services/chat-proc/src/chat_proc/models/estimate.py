"""Token estimates without the network: characters per token, learnt per model from the usage that providers report."""

from dataclasses import dataclass

from everturn.model.llm.prompts import MediaPart, ModelRequest, TextPart

_FIRST_CHARS_PER_TOKEN = 3.5
"""Below the four of plain English, because prompts here hold JSON, code and tables."""
_LOWEST, _HIGHEST = 1.0, 8.0
_WEIGHT = 0.2
_MIN_TOKENS_TO_LEARN = 200
_IMAGE_TOKENS = 1_600
"""Both providers scale an image down to about this cost at their default detail."""
_PDF_BYTES_PER_TOKEN = 30
_PDF_MIN_TOKENS = 2_000


@dataclass(frozen=True, slots=True)
class CharsPerToken:
    """The ratio of one model. A new value is made by each lesson; keep one per model name."""

    ratio: float = _FIRST_CHARS_PER_TOKEN

    def learned(self, chars: int, tokens: int) -> "CharsPerToken":
        """After a call whose text parts had `chars` characters and which the provider counted as `tokens`.

        Short calls teach nothing: the provider's own framing weighs too much in them.
        """
        if tokens < _MIN_TOKENS_TO_LEARN or chars <= 0:
            return self
        seen = min(_HIGHEST, max(_LOWEST, chars / tokens))
        return CharsPerToken(self.ratio + _WEIGHT * (seen - self.ratio))

    def tokens_for(self, chars: int) -> int:
        """Estimated tokens of a text of `chars` characters, rounded up."""
        return -int(-chars // self.ratio)


def estimate_request(request: ModelRequest, ratio: CharsPerToken) -> int:
    """Estimated input tokens of a request, media included."""
    parts = (part for message in request.messages for part in message.parts)
    media_tokens = sum(estimate_media(part) for part in parts if isinstance(part, MediaPart))
    return ratio.tokens_for(count_chars(request)) + media_tokens


def estimate_media(part: MediaPart) -> int:
    """Rough tokens of an image or PDF, from its kind and size alone."""
    if part.mime == "application/pdf":
        return max(_PDF_MIN_TOKENS, len(part.data) // _PDF_BYTES_PER_TOKEN)
    return _IMAGE_TOKENS


def count_chars(request: ModelRequest) -> int:
    """Characters of all text parts."""
    return sum(len(part.text) for message in request.messages for part in message.parts if isinstance(part, TextPart))
