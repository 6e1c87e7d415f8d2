"""Token estimates without network access: characters per token, learned per model from the usage that providers
report."""

from dataclasses import dataclass

_FIRST_CHARS_PER_TOKEN = 3.5
"""Less than the four of plain English, because prompts here contain JSON, code and tables."""
_LOWEST, _HIGHEST = 1.0, 8.0
_WEIGHT = 0.2
_MIN_TOKENS_TO_LEARN = 200
_IMAGE_TOKENS = 1_600
"""Both providers scale an image down to about this cost at their default detail."""
_PDF_BYTES_PER_TOKEN = 30
_PDF_MIN_TOKENS = 2_000


@dataclass(frozen=True, slots=True)
class CharsPerToken:
    """The ratio of one model. Values are immutable; keep the latest per model name."""

    ratio: float = _FIRST_CHARS_PER_TOKEN

    def learned(self, chars: int, tokens: int) -> "CharsPerToken":
        """The ratio after a call whose text parts had `chars` characters and which the provider counted as `tokens`.

        Short calls are ignored, because the provider's own framing distorts their ratio.
        """
        if tokens < _MIN_TOKENS_TO_LEARN or chars <= 0:
            return self
        seen = min(_HIGHEST, max(_LOWEST, chars / tokens))
        return CharsPerToken(self.ratio + _WEIGHT * (seen - self.ratio))

    def tokens_for(self, chars: int) -> int:
        """Estimated tokens of a text of `chars` characters, rounded up."""
        return -int(-chars // self.ratio)


def estimate_media_tokens(mime: str, size: int) -> int:
    """Rough tokens of an image or PDF of `size` bytes, from its kind and size alone."""
    if mime == "application/pdf":
        return max(_PDF_MIN_TOKENS, size // _PDF_BYTES_PER_TOKEN)
    return _IMAGE_TOKENS
