"""Token estimates without network access: characters per token, learned per model from the usage that providers
report."""

import json
from dataclasses import dataclass

from everturn.models.port import (
    MediaPart,
    ModelRequest,
    ModelUsage,
    Part,
    TextPart,
    ToolCallPart,
    ToolDeclaration,
    ToolResultPart,
)

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
        """The ratio after a call whose texts had `chars` characters and which the provider counted as `tokens`.

        Short calls are ignored, because the provider's own framing distorts their ratio.
        """
        if tokens < _MIN_TOKENS_TO_LEARN or chars <= 0:
            return self
        seen = min(_HIGHEST, max(_LOWEST, chars / tokens))
        return CharsPerToken(self.ratio + _WEIGHT * (seen - self.ratio))

    def tokens_for(self, chars: int) -> int:
        """Estimated tokens of a text of `chars` characters, rounded up."""
        return -int(-chars // self.ratio)


FIRST_RATIO = CharsPerToken()
"""Of a model that has not answered yet."""


def estimate_media_tokens(mime: str, size: int) -> int:
    """Rough tokens of an image or PDF of `size` bytes, from its kind and size alone."""
    if mime == "application/pdf":
        return max(_PDF_MIN_TOKENS, size // _PDF_BYTES_PER_TOKEN)
    return _IMAGE_TOKENS


def estimate_part(part: Part, ratio: CharsPerToken) -> int:
    """Estimated tokens of one part of a message."""
    if isinstance(part, MediaPart):
        return estimate_media_tokens(part.mime, part.data.size)
    return ratio.tokens_for(count_part(part))


def estimate_request(request: ModelRequest, ratio: CharsPerToken) -> int:
    """Estimated input tokens of a request, with its media and the declarations of its tools."""
    return ratio.tokens_for(count_chars(request)) + count_media_tokens(request)


def estimate_usage(request: ModelRequest, reply_chars: int, ratio: CharsPerToken = FIRST_RATIO) -> ModelUsage:
    """The usage of a call whose provider reported none, because we ended it or as some compatible servers do."""
    return ModelUsage(estimate_request(request, ratio), ratio.tokens_for(reply_chars), estimated=True)


def count_media_tokens(request: ModelRequest) -> int:
    """Estimated tokens of all images and PDFs."""
    parts = (part for message in request.messages for part in message.parts)
    return sum(estimate_media_tokens(part.mime, part.data.size) for part in parts if isinstance(part, MediaPart))


def count_chars(request: ModelRequest) -> int:
    """Characters of all texts, calls, results and declarations, and of the schema of the reply."""
    parts = sum(count_part(part) for message in request.messages for part in message.parts)
    schema = request.reply_form.schema if request.reply_form else None
    return (
        parts + sum(map(_count_declaration, request.tools)) + (0 if schema is None else len(json.dumps(dict(schema))))
    )


def count_part(part: Part) -> int:
    """Characters of one part; none for an image or a PDF."""
    match part:
        case TextPart(text=text) | ToolResultPart(text=text):
            return len(text)
        case ToolCallPart(name=name, arguments=arguments):
            return len(name) + len(arguments)
        case MediaPart():
            return 0


def _count_declaration(tool: ToolDeclaration) -> int:
    return len(tool.name) + len(tool.description) + len(json.dumps(dict(tool.parameters)))


class LearnedRatios:
    """One ratio for each model name. Only `learn` changes them."""

    def __init__(self) -> None:
        self._by_model: dict[str, CharsPerToken] = {}

    def of(self, model: str) -> CharsPerToken:
        """The ratio learned so far; the default for a model that has not answered yet."""
        return self._by_model.get(model, FIRST_RATIO)

    def learn(self, model: str, request: ModelRequest, usage: ModelUsage) -> None:
        """Learn from a call that the provider counted; our own estimates are ignored."""
        if not usage.estimated:
            text_tokens = usage.input_tokens - count_media_tokens(request)
            self._by_model[model] = self.of(model).learned(count_chars(request), text_tokens)
