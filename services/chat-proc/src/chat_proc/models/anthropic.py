"""The Anthropic Messages API as a LanguageModel, over the official SDK."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import cast
from urllib.parse import quote

import anthropic.types as sdk
import httpx2
from anthropic import (
    AnthropicError,
    APIConnectionError,
    APIStatusError,
    AsyncAnthropic,
    AsyncStream,
    DefaultAsyncHttpxClient,
    transform_schema,
)
from anthropic._constants import ANTHROPIC_API_VERSION
from anthropic.lib.bedrock import AsyncAnthropicBedrock
from anthropic.lib.vertex import AsyncAnthropicVertex

from chat_proc.models.bodies import build_body, refer_to
from chat_proc.models.bounded_http import TIMEOUT, build_event_hooks
from chat_proc.models.cards import ModelCards
from chat_proc.models.dialects import ONE_FORM, DialectLearner
from chat_proc.models.endpoints import Server
from chat_proc.models.model_lists import ASK_LIMIT_S, MAX_LIST_BYTES, build_list_failure, read_list
from chat_proc.models.replies import (
    MALFORMED,
    TRANSPORT,
    build_cut_failure,
    build_failure,
    build_transport_failure,
    normalize_pieces,
    try_read_count,
    try_read_token,
)
from chat_proc.models.roles import Listed, ModelChoice
from chat_proc.models.streams import CLOSE_WAIT_S, USAGE_WAIT_S, StreamedReply
from chat_proc.models.tool_calls import ToolCallReader
from chat_proc.models.usage import UsageChecker
from everturn.models.port import (
    FinishReason,
    JsonReply,
    MediaPart,
    ModelFailed,
    ModelPiece,
    ModelRequest,
    ModelTraits,
    ModelUsage,
    Part,
    PromptMessage,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolDeclaration,
    ToolResultPart,
)

MAX_CACHE_POINTS = 4
"""The limit of both providers."""
MAX_LISTED = 1_000
"""Models on one page of the API's list, at most."""

_Client = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex
_DAMAGES = (APIConnectionError, *TRANSPORT, *MALFORMED)
"""What the SDK raises if a stream breaks or can't be read."""
_IMAGE_MIMES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def keep_last_cache_points(
    messages: Sequence[PromptMessage], *, limit: int = MAX_CACHE_POINTS
) -> tuple[PromptMessage, ...]:
    """The messages with their first and last cache points, at most `limit`.

    A changed conversation can still hit the first (after the system text); the last ones grow with the turn.
    """
    marked = _places(messages)
    kept = set(marked if len(marked) <= limit else [marked[0], *marked[1 - limit :]])
    return tuple(
        replace(message, parts=tuple(_keep(part, (at, index) in kept) for index, part in enumerate(message.parts)))
        for at, message in enumerate(messages)
    )


def _places(messages: Sequence[PromptMessage]) -> list[tuple[int, int]]:
    return [
        (at, index)
        for at, message in enumerate(messages)
        for index, part in enumerate(message.parts)
        if _is_cache_point(part)
    ]


def _is_cache_point(part: Part) -> bool:
    match part:
        case TextPart(cache_point=True, text=text):
            return bool(text)
        case ToolResultPart(cache_point=True):
            return True
        case _:
            return False


def _keep(part: Part, kept: bool) -> Part:
    return replace(part, cache_point=kept) if isinstance(part, TextPart | ToolResultPart) else part


def build_model(choice: ModelChoice, cards: ModelCards, server: Server | None) -> "AnthropicModel":
    """The chosen model on this server; without one, key and base URL come from the SDK's own environment variables."""
    client = _build_client(server)
    card = cards.find_card(choice, reads_media=server is None)
    traits = card.build_traits(
        choice.name,
        provider="anthropic",
        server_address=client.base_url.host,
        endpoint="" if server is None else server.endpoint,
    )
    return AnthropicModel(client, traits, adaptive_thinking=card.adaptive_thinking)


async def ask_list(name: str, server: Server | None) -> Listed:
    """What the server's list says of a model. Raises ModelFailed."""
    async with _build_client(server, max_bytes=MAX_LIST_BYTES) as client:
        try:
            async with asyncio.timeout(ASK_LIMIT_S):
                listed = await client.get(f"/v1/models?limit={MAX_LISTED}", cast_to=httpx2.Response)
                return await read_list(listed, name)
        except (AnthropicError, *TRANSPORT, *MALFORMED) as error:
            raise build_list_failure(error) from error


def _build_client(server: Server | None, *, max_bytes: int | None = None) -> AsyncAnthropic:
    return AsyncAnthropic(
        # Without any key, the SDK would read that of its provider. The hooks remove this one.
        api_key=server and (server.api_key or "none"),
        base_url=server and server.base_url,
        max_retries=0,
        timeout=TIMEOUT,
        http_client=DefaultAsyncHttpxClient(
            follow_redirects=False, event_hooks=build_event_hooks(server, max_bytes=max_bytes)
        ),
    )


class AnthropicModel:
    """One model of one client. The caller retries: `build_model` disables the SDK's own retries."""

    def __init__(
        self,
        client: _Client,
        traits: ModelTraits,
        *,
        adaptive_thinking: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._traits = traits
        self._adaptive_thinking = adaptive_thinking
        self._now = now
        self._usage = UsageChecker(traits)
        self._learner = DialectLearner(traits, ONE_FORM)
        self._path, self._common = _find_path(client, traits.name)

    @property
    def traits(self) -> ModelTraits:
        return self._traits

    def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """Stream one reply; closing the generator closes the HTTP response."""
        return self._usage.end_filtered(self._generate(request), request)

    async def _generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        try:
            async with aclosing(normalize_pieces(self._stream(request))) as pieces:
                async for piece in pieces:
                    yield piece
        except APIStatusError as error:
            raise build_failure(
                status=error.status_code,
                kind=error.error_code or error.type,
                message=_read_message(error),
                headers=error.response.headers,
                now=self._now(),
            ) from error
        except (AnthropicError, *TRANSPORT, *MALFORMED) as error:
            raise build_transport_failure(error) from error

    async def aclose(self) -> None:
        """Close the HTTP client; the model can't be used afterwards."""
        await self._client.close()

    async def _ask(self, request: ModelRequest, max_tokens: int) -> AsyncStream[sdk.RawMessageStreamEvent]:
        return await self._client.post(
            self._path,
            content=await build_body(request, lambda: self._build_fields(request, max_tokens)),
            cast_to=sdk.Message,
            stream=True,
            stream_cls=AsyncStream[sdk.RawMessageStreamEvent],
        )

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        stream = await self._learner.ask(
            self._traits.limit_reply(request.max_output_tokens),
            lambda _, max_tokens: self._ask(request, max_tokens),
            APIStatusError,
            lambda refusal: (refusal.status_code, _read_message(refusal)),
        )
        reply = ReplyReader()
        async with stream, aclosing(reply.read_events(stream, _DAMAGES)) as events:
            async for event in events:
                piece = reply.read(event)
                if piece is not None:
                    yield piece
        if reply.stop_reason is None:
            raise build_cut_failure(stream.response.headers, self._now(), has_events=reply.has_events)
        usage = self._usage.complete(reply.try_count(), request, reply.chars)
        yield ReplyFinished(_finish_reason(reply.stop_reason), usage, reply.response_model, reply.response_id)

    def _build_fields(self, request: ModelRequest, max_tokens: int) -> dict[str, object]:
        thinks = self._adaptive_thinking and not request.force_tool
        return {
            **self._common,
            "max_tokens": max_tokens,
            "system": render_system(request) or None,
            "messages": render_messages(request),
            "tools": render_tools(request) or None,
            "tool_choice": _render_choice(request.force_tool) if request.force_tool else None,
            "output_config": {"format": _render_form(request.reply_form)} if request.reply_form else None,
            # Without it newer models think silently, and a long silence looks like a stall. A model that must call a
            # tool can't think before it.
            "thinking": {"type": "adaptive", "display": "summarized"} if thinks else None,
        }


def _find_path(client: _Client, name: str) -> tuple[str, dict[str, object]]:
    """Where a model streams its replies, and what its requests have in common. On a cloud, the path names the model."""
    match client:
        case AsyncAnthropicBedrock():
            path = f"/model/{quote(name, safe=':;')}/invoke-with-response-stream"
            return path, {"anthropic_version": ANTHROPIC_API_VERSION}
        case AsyncAnthropicVertex():
            place = f"/projects/{client.project_id}/locations/{client.region}/publishers/anthropic"
            path = f"{place}/models/{quote(name, safe=':@')}:streamRawPredict"
            return path, {"anthropic_version": ANTHROPIC_API_VERSION, "stream": True}
        case _:
            return "/v1/messages", {"model": name, "stream": True}


class ReplyReader(StreamedReply):
    """Folds the events of one reply into pieces; holds the usage and the stop reason until the end.

    The SDK does not validate what a server sends, so events are matched by shape and all others are skipped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.usage = ModelUsage()
        self.is_output_counted = False
        self.stop_reason: str | None = None
        self._calls = ToolCallReader()
        self._is_whole = False
        """Whether the first event of the current call had all its arguments, as some gateways send them."""

    def read(self, event: object) -> ModelPiece | None:
        """The piece that an event carries, if any."""
        match event:
            case sdk.RawContentBlockStartEvent(content_block=sdk.ToolUseBlock() as block):
                return self._read_call(event, block)
            case sdk.RawContentBlockDeltaEvent(delta=sdk.InputJSONDelta() as delta):
                return self._read_arguments(event, getattr(delta, "partial_json", None))
            case sdk.RawContentBlockDeltaEvent(delta=sdk.TextDelta(text=str(text))) if text:
                self.chars += len(text)
                return TextDelta(text)
            case sdk.RawContentBlockDeltaEvent(delta=sdk.ThinkingDelta(thinking=str(text))) if text:
                self.chars += len(text)
                return ReasoningDelta(text)
            case sdk.RawMessageStartEvent(message=sdk.Message() as message):
                self.usage = _read_usage(getattr(message, "usage", None), self.usage)
                self.response_model = try_read_token(getattr(message, "model", None))
                self.response_id = try_read_token(getattr(message, "id", None))
            case sdk.RawMessageDeltaEvent() as closing:
                counts = getattr(closing, "usage", None)
                self.usage = _read_usage(counts, self.usage)
                # The output count at the beginning covers no more than the first token.
                self.is_output_counted |= bool(try_read_count(getattr(counts, "output_tokens", None)))
                delta = getattr(closing, "delta", None)
                if (reason := try_read_token(getattr(delta, "stop_reason", None))) is not None:
                    self.stop_reason = reason
                    self.end_within(USAGE_WAIT_S)
            case sdk.RawMessageStopEvent():
                self.end_within(CLOSE_WAIT_S)
            case _:
                pass
        return None

    def _read_call(self, event: object, block: object) -> ToolCallDelta | None:
        arguments = getattr(block, "input", None)
        self._is_whole = bool(arguments)
        call = self._calls.read(
            index=getattr(event, "index", None),
            call_id=getattr(block, "id", None),
            name=getattr(block, "name", None),
            arguments=arguments or None,
        )
        return self._count(call)

    def _read_arguments(self, event: object, text: object) -> ToolCallDelta | None:
        if self._is_whole:
            return None
        call = self._calls.read(index=getattr(event, "index", None), call_id=None, name=None, arguments=text)
        return self._count(call)

    def _count(self, call: ToolCallDelta | None) -> ToolCallDelta | None:
        if call is not None:
            self.chars += len(call.name) + len(call.arguments)
        return call

    def try_count(self) -> ModelUsage | None:
        """The provider's counts; None if one of them is missing or invalid."""
        is_counted = self.usage.input_tokens and (self.is_output_counted or not self.chars)
        return self.usage if is_counted else None


def _read_message(error: APIStatusError) -> str:
    return error.api_message or error.message


def render_system(request: ModelRequest) -> list[sdk.TextBlockParam]:
    """The text of all system messages, in order."""
    messages = _limit_cache_points(request)
    parts = (part for message in messages if message.role == "system" for part in message.parts)
    return [_render_text(part) for part in parts if isinstance(part, TextPart) and part.text]


def render_tools(request: ModelRequest) -> list[sdk.ToolParam]:
    """The declarations, with a cache point after the last one if the messages have any: it serves requests with other
    system texts."""
    tools = [_render_tool(tool) for tool in request.tools]
    if tools and _places(request.messages):
        tools[-1]["cache_control"] = {"type": "ephemeral"}
    return tools


def render_messages(request: ModelRequest) -> list[sdk.MessageParam]:
    """The other messages, without empty texts, which the API rejects.

    The results of calls are blocks of the user message after them, and come first in it.
    """
    messages = [message for message in _limit_cache_points(request) if message.role != "system"]
    rendered: list[sdk.MessageParam] = []
    for is_own, group in groupby(messages, lambda message: message.role == "assistant"):
        content = [block for message in group for block in _render_parts(message.parts)]
        own: sdk.MessageParam = {"role": "assistant", "content": content}
        rendered.append(own if is_own else {"role": "user", "content": content})
    return rendered


def _limit_cache_points(request: ModelRequest) -> tuple[PromptMessage, ...]:
    return keep_last_cache_points(request.messages, limit=MAX_CACHE_POINTS - bool(request.tools))


def _render_tool(tool: ToolDeclaration) -> sdk.ToolParam:
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}


def _render_choice(name: str) -> sdk.ToolChoiceToolParam:
    return {"type": "tool", "name": name, "disable_parallel_tool_use": True}


def _render_form(form: JsonReply) -> sdk.JSONOutputFormatParam:
    """The SDK moves what the API does not enforce into descriptions. Raises ModelFailed without a usable schema."""
    try:
        return {"type": "json_schema", "schema": transform_schema(dict(form.schema or {}))}
    except (*MALFORMED, AssertionError) as error:
        detail = "The provider can't enforce the form of the reply."
        raise ModelFailed(detail, kind="bad_request", provider_text=str(error)) from error


def _render_parts(parts: tuple[Part, ...]) -> Iterator[sdk.ContentBlockParam]:
    for part in parts:
        match part:
            case TextPart(text=""):
                continue
            case TextPart():
                yield _render_text(part)
            case MediaPart():
                yield _render_media(part)
            case ToolCallPart():
                arguments = cast("dict[str, object]", json.loads(part.arguments))
                yield {"type": "tool_use", "id": part.call_id, "name": part.name, "input": arguments}
            case ToolResultPart():
                yield _render_result(part)


def _render_result(part: ToolResultPart) -> sdk.ToolResultBlockParam:
    result: sdk.ToolResultBlockParam = {"type": "tool_result", "tool_use_id": part.call_id, "content": part.text}
    if part.cache_point:
        result["cache_control"] = {"type": "ephemeral"}
    return result


def _render_text(part: TextPart) -> sdk.TextBlockParam:
    if part.cache_point:
        return {"type": "text", "text": part.text, "cache_control": {"type": "ephemeral"}}
    return {"type": "text", "text": part.text}


def _render_media(part: MediaPart) -> sdk.ImageBlockParam | sdk.DocumentBlockParam:
    data = refer_to(part.data)
    for mime in _IMAGE_MIMES:
        if part.mime == mime:
            return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
    if part.mime == "application/pdf":
        source: sdk.Base64PDFSourceParam = {"type": "base64", "media_type": "application/pdf", "data": data}
        return {"type": "document", "title": part.name, "source": source}
    raise ModelFailed(f"The provider can't read {part.mime}.")


def _read_usage(usage: object, before: ModelUsage) -> ModelUsage:
    """Counts in the stream are cumulative; an absent or invalid count keeps its earlier value."""
    cache_read = _count(usage, "cache_read_input_tokens", before.cache_read_tokens)
    cache_write = _count(usage, "cache_creation_input_tokens", before.cache_write_tokens)
    uncached = before.input_tokens - before.cache_read_tokens - before.cache_write_tokens
    return replace(
        before,
        input_tokens=_count(usage, "input_tokens", uncached) + cache_read + cache_write,
        output_tokens=_count(usage, "output_tokens", before.output_tokens),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
    )


def _count(usage: object, name: str, otherwise: int) -> int:
    count = try_read_count(getattr(usage, name, None))
    return otherwise if count is None else count


def _finish_reason(stop_reason: str) -> FinishReason:
    match stop_reason:
        case "max_tokens" | "model_context_window_exceeded":
            return "length"
        case "refusal":
            return "refusal"
        case "content_filter":
            return "content_filter"
        case _:
            return "stop"
