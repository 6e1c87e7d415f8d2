"""The OpenAI Chat Completions API, and any server that speaks it, as a LanguageModel, over the official SDK."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

import httpx2
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    OpenAIError,
    omit,
)
from openai.types.chat import (
    ChatCompletionChunk,
    ChatCompletionContentPartParam,
    ChatCompletionContentPartTextParam,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageFunctionToolCallParam,
    ChatCompletionMessageParam,
    ChatCompletionNamedToolChoiceParam,
)
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta
from openai.types.shared_params import ResponseFormatJSONObject, ResponseFormatJSONSchema

from chat_proc.models.bounded_http import build_event_hooks
from chat_proc.models.cards import ModelCards, price_usage
from chat_proc.models.endpoints import Server
from chat_proc.models.model_lists import ASK_LIMIT_S, MAX_LIST_BYTES, build_list_failure, read_context_tokens
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
from chat_proc.models.roles import ModelChoice
from chat_proc.models.tool_calls import ToolCallReader
from everturn.models.port import (
    FinishReason,
    JsonReply,
    MediaPart,
    ModelFailed,
    ModelPiece,
    ModelRequest,
    ModelTraits,
    ModelUsage,
    PromptMessage,
    ReasoningDelta,
    RecordPart,
    ReplyFinished,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolDeclaration,
    ToolResultPart,
)
from everturn.models.tokens import estimate_usage

_OFFICIAL_HOST = "api.openai.com"


def build_model(choice: ModelChoice, cards: ModelCards, server: Server | None) -> "OpenAIModel":
    """The chosen model on this server; without one, key and base URL come from the SDK's own environment variables."""
    client = _build_client(server)
    host = client.base_url.host
    card = cards.find_card(choice, reads_media=host == _OFFICIAL_HOST)
    traits = card.build_traits(
        choice.name, provider="openai", server_address=host, endpoint="" if server is None else server.endpoint
    )
    return OpenAIModel(client, traits)


async def ask_context_tokens(name: str, server: Server | None) -> int | None:
    """The context length of a model, if the server states it. Raises ModelFailed."""
    async with _build_client(server, max_bytes=MAX_LIST_BYTES) as client:
        if client.base_url.host == _OFFICIAL_HOST:
            return None  # its list has no lengths
        try:
            async with asyncio.timeout(ASK_LIMIT_S):
                listed = await client.get("/models", cast_to=httpx2.Response)
                tokens = await read_context_tokens(listed, name)
                return tokens or await _ask_lm_studio(client, name)
        except (OpenAIError, *TRANSPORT, *MALFORMED) as error:
            raise build_list_failure(error) from error


async def _ask_lm_studio(client: AsyncOpenAI, name: str) -> int | None:
    """The same from the list of LM Studio's own API; None if the server has no such API, but perhaps a page for it."""
    root = str(client.base_url).removesuffix("/").removesuffix("/v1")
    try:
        listed = await client.get(f"{root}/api/v0/models", cast_to=httpx2.Response)
        return await read_context_tokens(listed, name)
    except (APIStatusError, ValueError, RecursionError):
        return None


def _build_client(server: Server | None, *, max_bytes: int | None = None) -> AsyncOpenAI:
    return AsyncOpenAI(
        # Without any key, the SDK would read that of its provider. The hooks remove this one.
        api_key=server and (server.api_key or "none"),
        base_url=server and server.base_url,
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(event_hooks=build_event_hooks(server, max_bytes=max_bytes)),
    )


class OpenAIModel:
    """One model of one client. The caller retries: `build_model` disables the SDK's own retries."""

    def __init__(
        self, client: AsyncOpenAI, traits: ModelTraits, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
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
            async with aclosing(normalize_pieces(self._stream(request))) as pieces:
                async for piece in pieces:
                    yield piece
        except APIStatusError as error:
            raise self._build_failure(error, error.status_code, error.response.headers) from error
        except APIConnectionError as error:
            raise build_transport_failure(error) from error
        except APIError as error:  # an error object inside the stream
            raise self._build_failure(error, 200, httpx2.Headers()) from error
        except (OpenAIError, *TRANSPORT, *MALFORMED) as error:
            raise build_transport_failure(error) from error

    async def aclose(self) -> None:
        """Close the HTTP client; the model can't be used afterwards."""
        await self._client.close()

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        reply = ReplyReader()
        async with await self._open_stream(request) as stream:
            async for chunk in stream:
                for piece in reply.read(chunk):
                    yield piece
        if reply.finish_reason is None:
            raise build_cut_failure(stream.response.headers, self._now(), has_events=reply.has_events)
        usage = price_usage(reply.usage or estimate_usage(request, reply.chars), self._traits)
        yield ReplyFinished(_finish_reason(reply.finish_reason), usage, reply.response_model, reply.response_id)

    async def _open_stream(self, request: ModelRequest) -> AsyncStream[ChatCompletionChunk]:
        # OpenAI's newer models reject `max_tokens`; many compatible servers accept nothing else.
        official = self._client.base_url.host == _OFFICIAL_HOST
        max_tokens = self._traits.limit_reply(request.max_output_tokens)
        return await self._client.chat.completions.create(
            model=self._traits.name,
            messages=render_messages(request.messages),
            tools=[_render_tool(tool) for tool in request.tools] or omit,
            tool_choice=_render_choice(request.force_tool) if request.force_tool else omit,
            response_format=_render_form(request.reply_form) if request.reply_form else omit,
            max_completion_tokens=max_tokens if official else omit,
            max_tokens=omit if official else max_tokens,
            stream=True,
            stream_options={"include_usage": True},
        )

    def _build_failure(self, error: APIError, status: int, headers: httpx2.Headers) -> ModelFailed:
        kind = error.type if error.code is None else error.code
        return build_failure(status=status, kind=kind, message=error.message, headers=headers, now=self._now())


class ReplyReader:
    """Folds the chunks of one reply into pieces; holds the usage and the finish reason until the end.

    The SDK does not validate what a server sends, so chunks are matched by shape and all others are skipped.
    """

    def __init__(self) -> None:
        self.usage: ModelUsage | None = None
        self.chars = 0
        self.finish_reason: str | None = None
        self.response_model: str | None = None
        self.response_id: str | None = None
        self.has_events = False
        self._calls = ToolCallReader()

    def read(self, chunk: object) -> list[ModelPiece]:
        """The pieces that a chunk carries."""
        self.has_events = True
        if not isinstance(chunk, ChatCompletionChunk):
            return []
        self.usage = _try_read_usage(getattr(chunk, "usage", None)) or self.usage
        self.response_model = try_read_token(getattr(chunk, "model", None)) or self.response_model
        self.response_id = try_read_token(getattr(chunk, "id", None)) or self.response_id
        match chunk:
            case ChatCompletionChunk(choices=[Choice() as choice, *_]):
                if self.finish_reason != "refusal":  # after the text of a refusal the API closes with "stop"
                    self.finish_reason = try_read_token(getattr(choice, "finish_reason", None)) or self.finish_reason
                return self._read_delta(getattr(choice, "delta", None))
            case _:
                return []

    def _read_delta(self, delta: object) -> list[ModelPiece]:
        pieces: list[ModelPiece] = []
        match delta:
            case ChoiceDelta(model_extra={"reasoning_content": str(text)} | {"reasoning": str(text)}) if text:
                pieces.append(ReasoningDelta(text))
            case _:
                pass
        match delta:
            case ChoiceDelta(content=str(text)) if text:
                pieces.append(TextDelta(text))
            case ChoiceDelta(refusal=str(text)) if text:
                self.finish_reason = "refusal"
                pieces.append(TextDelta(text))
            case _:
                pass
        self.chars += sum(len(piece.text) for piece in pieces if isinstance(piece, TextDelta | ReasoningDelta))
        for call in self._read_calls(delta):
            self.chars += len(call.name) + len(call.arguments)
            pieces.append(call)
        return pieces

    def _read_calls(self, delta: object) -> Iterator[ToolCallDelta]:
        match delta:
            case ChoiceDelta(tool_calls=[*sent]):
                for each in sent:
                    function = getattr(each, "function", None)
                    call = self._calls.read(
                        index=getattr(each, "index", None),
                        call_id=getattr(each, "id", None),
                        name=getattr(function, "name", None),
                        arguments=getattr(function, "arguments", None),
                    )
                    if call is not None:
                        yield call
            case _:
                pass


def render_messages(messages: Sequence[PromptMessage]) -> list[ChatCompletionMessageParam]:
    """The API's messages. It caches prefixes automatically, so cache points are not sent.

    The calls get ids that every server accepts, in the order in which they appear: Mistral's API accepts nothing but
    nine letters and digits.
    """
    parts = [part for message in messages for part in message.parts]
    calls = [part.call_id for part in parts if isinstance(part, ToolCallPart)]
    sent_ids = {call_id: f"call{number:05}" for number, call_id in enumerate(calls, start=1)}
    return [rendered for message in messages for rendered in _render_message(message, sent_ids)]


def _render_message(message: PromptMessage, sent_ids: Mapping[str, str]) -> Iterator[ChatCompletionMessageParam]:
    """System, assistant and tool messages are text."""
    match message.role:
        case "system":
            yield {"role": "system", "content": _render_texts(message)}
        case "assistant":
            calls = [_render_call(part, sent_ids) for part in message.parts if isinstance(part, ToolCallPart)]
            if calls:
                # Not a list of parts: not every server accepts one beside calls.
                text = "\n\n".join(part.text for part in message.parts if isinstance(part, TextPart))
                yield {"role": "assistant", "content": text or None, "tool_calls": calls}
            else:
                yield {"role": "assistant", "content": _render_texts(message)}
        case "tool":
            for part in message.parts:
                if isinstance(part, ToolResultPart):
                    yield {"role": "tool", "tool_call_id": sent_ids[part.call_id], "content": part.text}
        case "user":
            parts = [part for part in message.parts if isinstance(part, TextPart | MediaPart)]
            yield {"role": "user", "content": [_render_part(part) for part in parts]}


def _render_call(part: ToolCallPart, sent_ids: Mapping[str, str]) -> ChatCompletionMessageFunctionToolCallParam:
    return {
        "id": sent_ids[part.call_id],
        "type": "function",
        "function": {"name": part.name, "arguments": part.arguments},
    }


def _render_tool(tool: ToolDeclaration) -> ChatCompletionFunctionToolParam:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
    }


def _render_choice(name: str) -> ChatCompletionNamedToolChoiceParam:
    return {"type": "function", "function": {"name": name}}


def _render_form(form: JsonReply) -> ResponseFormatJSONObject | ResponseFormatJSONSchema:
    """A schema is not `strict`: the API would reject one with optional properties."""
    if form.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": dict(form.schema)}}


def _render_texts(message: PromptMessage) -> list[ChatCompletionContentPartTextParam]:
    return [{"type": "text", "text": part.text} for part in message.parts if isinstance(part, TextPart)]


def _render_part(part: RecordPart) -> ChatCompletionContentPartParam:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    url = f"data:{part.mime};base64,{b64encode(part.data).decode('ascii')}"
    if part.mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": part.name, "file_data": url}}


def _finish_reason(reason: str) -> FinishReason:
    match reason:
        case "length":
            return "length"
        case "content_filter":
            return "content_filter"
        case "refusal":
            return "refusal"
        case _:  # "stop", and "tool_calls", "function_call" or "tool_use" after calls
            return "stop"


def _try_read_usage(usage: object) -> ModelUsage | None:
    """The provider's usage; None if its counts are missing or invalid, then we estimate."""
    sent = try_read_count(getattr(usage, "prompt_tokens", None))
    received = try_read_count(getattr(usage, "completion_tokens", None))
    if sent is None or received is None:
        return None
    details = getattr(usage, "prompt_tokens_details", None)
    return ModelUsage(
        input_tokens=sent,
        output_tokens=received,
        cache_read_tokens=min(try_read_count(getattr(details, "cached_tokens", None)) or 0, sent),
        cache_write_tokens=min(try_read_count(getattr(details, "cache_write_tokens", None)) or 0, sent),
    )
