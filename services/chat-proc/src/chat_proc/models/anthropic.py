"""The Anthropic Messages API as a LanguageModel, over the official SDK."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

import anthropic.types as sdk
import httpx2
from anthropic import APIConnectionError, APIStatusError, AsyncAnthropic, omit
from anthropic.types.raw_message_delta_event import Delta

from chat_proc.models.cache_points import keep_last_cache_points
from chat_proc.models.failures import build_failure, build_transport_failure
from chat_proc.models.pricing import build_traits, find_card, price_usage
from everturn.model.llm.prompts import MediaPart, ModelRequest, Part, PromptMessage, TextPart
from everturn.ports.language_model import (
    FinishReason,
    ModelFailed,
    ModelPiece,
    ModelTraits,
    ModelUsage,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
)

_IMAGE_MIMES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def build_model(name: str) -> "AnthropicModel":
    """The model of this name; key and base URL come from the SDK's own environment variables."""
    return AnthropicModel(
        AsyncAnthropic(max_retries=0), build_traits(name, provider="anthropic", unknown_reads_media=True)
    )


class AnthropicModel:
    """One model behind one client. Retries are the caller's: the SDK's own are switched off by `build_model`."""

    def __init__(
        self, client: AsyncAnthropic, traits: ModelTraits, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client = client
        self._traits = traits
        self._now = now

    @property
    def traits(self) -> ModelTraits:
        return self._traits

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """Stream one reply; closing the generator closes the HTTP response."""
        try:
            async with aclosing(self._stream(request)) as pieces:
                async for piece in pieces:
                    yield piece
        except APIStatusError as error:
            message = error.api_message or error.message
            raise build_failure(
                status=error.status_code,
                kind=error.error_code or error.type,
                message=message,
                headers=error.response.headers,
                now=self._now(),
            ) from error
        except (APIConnectionError, httpx2.HTTPError, OSError, ValueError) as error:
            raise build_transport_failure(error) from error

    async def aclose(self) -> None:
        """Close the HTTP client; the model can't be used afterwards."""
        await self._client.close()

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        card = find_card(self._traits.name)
        stream = await self._client.messages.create(
            model=self._traits.name,
            max_tokens=request.max_output_tokens,
            system=render_system(request) or omit,
            messages=render_messages(request),
            # Without it the newer models think silently, and a long silence looks like a stall.
            thinking={"type": "adaptive", "display": "summarized"} if card and card.adaptive_thinking else omit,
            stream=True,
        )
        reply = ReplyReader()
        async with stream:
            async for event in stream:
                piece = reply.read(event)
                if piece is not None:
                    yield piece
        yield ReplyFinished(reply.check_finished(), price_usage(reply.usage, self._traits.name))


class ReplyReader:
    """Folds the events of one reply into pieces; holds the usage and the stop reason until the end.

    The SDK does not validate what a server sends, so events are matched by shape and everything else is passed over.
    """

    def __init__(self) -> None:
        self.usage = ModelUsage()
        self._stop_reason: str | None = None

    def read(self, event: object) -> ModelPiece | None:
        """The piece that an event carries, if any."""
        match event:
            case sdk.RawContentBlockDeltaEvent(delta=sdk.TextDelta(text=str(text))) if text:
                return TextDelta(text)
            case sdk.RawContentBlockDeltaEvent(delta=sdk.ThinkingDelta(thinking=str(text))) if text:
                return ReasoningDelta(text)
            case sdk.RawMessageStartEvent(message=sdk.Message(usage=sdk.Usage() as usage)):
                self.usage = _read_usage(usage, self.usage)
            case sdk.RawMessageDeltaEvent(delta=Delta(stop_reason=stop_reason), usage=sdk.MessageDeltaUsage() as usage):
                self.usage = _read_usage(usage, self.usage)
                self._stop_reason = stop_reason or self._stop_reason
            case _:
                pass
        return None

    def check_finished(self) -> FinishReason:
        """The finish reason; raises ModelFailed when the stream ended without one."""
        if self._stop_reason is None:
            raise ModelFailed("The reply was cut before its end.", retryable=True)
        return _finish_reason(self._stop_reason)


def render_system(request: ModelRequest) -> list[sdk.TextBlockParam]:
    """The text of all system messages, in order."""
    messages = keep_last_cache_points(request.messages)
    parts = (part for message in messages if message.role == "system" for part in message.parts)
    return [_render_text(part) for part in parts if isinstance(part, TextPart) and part.text]


def render_messages(request: ModelRequest) -> list[sdk.MessageParam]:
    """The other messages. Empty texts are left out: the API refuses them."""
    messages = keep_last_cache_points(request.messages)
    return [_render_message(message) for message in messages if message.role != "system"]


def _render_message(message: PromptMessage) -> sdk.MessageParam:
    content = list(_render_parts(message.parts))
    if message.role == "assistant":
        return {"role": "assistant", "content": content}
    return {"role": "user", "content": content}


def _render_parts(parts: tuple[Part, ...]) -> Iterator[sdk.ContentBlockParam]:
    for part in parts:
        match part:
            case TextPart(text=""):
                continue
            case TextPart():
                yield _render_text(part)
            case MediaPart():
                yield _render_media(part)


def _render_text(part: TextPart) -> sdk.TextBlockParam:
    if part.cache_point:
        return {"type": "text", "text": part.text, "cache_control": {"type": "ephemeral"}}
    return {"type": "text", "text": part.text}


def _render_media(part: MediaPart) -> sdk.ImageBlockParam | sdk.DocumentBlockParam:
    data = b64encode(part.data).decode("ascii")
    for mime in _IMAGE_MIMES:
        if part.mime == mime:
            return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
    if part.mime == "application/pdf":
        source: sdk.Base64PDFSourceParam = {"type": "base64", "media_type": "application/pdf", "data": data}
        return {"type": "document", "title": part.name, "source": source}
    raise ModelFailed(f"The provider can't read {part.mime}.")


def _read_usage(usage: sdk.Usage | sdk.MessageDeltaUsage, before: ModelUsage) -> ModelUsage:
    """The counts of the stream are cumulative; a count that is absent keeps its earlier value."""
    cache_read = _count(usage.cache_read_input_tokens, before.cache_read_tokens)
    cache_write = _count(usage.cache_creation_input_tokens, before.cache_write_tokens)
    uncached = before.input_tokens - before.cache_read_tokens - before.cache_write_tokens
    return replace(
        before,
        input_tokens=_count(usage.input_tokens, uncached) + cache_read + cache_write,
        output_tokens=_count(usage.output_tokens, before.output_tokens),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
    )


def _count(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and value >= 0 else otherwise


def _finish_reason(stop_reason: str) -> FinishReason:
    match stop_reason:
        case "max_tokens" | "model_context_window_exceeded":
            return "length"
        case "refusal":
            return "refusal"
        case _:
            return "stop"
