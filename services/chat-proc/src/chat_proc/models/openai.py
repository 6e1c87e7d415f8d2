"""The OpenAI Chat Completions API, and any server that speaks it, as a LanguageModel, over the official SDK."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar, cast
from urllib.parse import quote

import httpx2
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncAzureOpenAI,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    OpenAIError,
)
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionContentPartParam,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageFunctionToolCallParam,
    ChatCompletionMessageParam,
    ChatCompletionNamedToolChoiceParam,
)
from openai.types.chat.chat_completion_chunk import Choice
from openai.types.shared_params import ResponseFormatJSONObject, ResponseFormatJSONSchema

from chat_proc.models.bodies import build_body, refer_to
from chat_proc.models.bounded_http import TIMEOUT, build_event_hooks, has_end_mark
from chat_proc.models.cards import ModelCards
from chat_proc.models.dialects import Dialect, DialectLearner
from chat_proc.models.endpoints import Server
from chat_proc.models.model_lists import ASK_LIMIT_S, MAX_LIST_BYTES, build_list_failure, read_list
from chat_proc.models.replies import (
    MALFORMED,
    TRANSPORT,
    build_cut_failure,
    build_error_object_failure,
    build_failure,
    build_transport_failure,
    normalize_pieces,
    read_fields,
    read_text,
    try_find_error,
    try_read_count,
    try_read_token,
)
from chat_proc.models.roles import Listed, ModelChoice
from chat_proc.models.streams import USAGE_WAIT_S, StreamedReply, split_text
from chat_proc.models.think_tags import split_thinking
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

OFFICIAL_HOST = "api.openai.com"
DAMAGES = (APIConnectionError, *TRANSPORT, *MALFORMED)
"""What the SDK raises if a stream breaks or can't be read."""
_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where servers put what a model thought. A delta can have both, with the same text, or one of them empty."""
_FAILED_ENDS = frozenset({"abort", "error", "insufficient_system_resource", "network_error"})
"""Finish reasons of replies that a failure ended: of vLLM, Mistral and OpenRouter, DeepSeek, and Z.ai."""


T = TypeVar("T")


def build_model(choice: ModelChoice, cards: ModelCards, server: Server | None) -> "OpenAIModel":
    """The chosen model on this server; without one, key and base URL come from the SDK's own environment variables."""
    return OpenAIModel(*build_parts(choice, cards, server))


def build_parts(choice: ModelChoice, cards: ModelCards, server: Server | None) -> tuple[AsyncOpenAI, ModelTraits]:
    """The client and the traits of a model, over either of OpenAI's APIs."""
    client = build_client(server)
    host = client.base_url.host
    card = cards.find_card(choice, reads_media=host == OFFICIAL_HOST)
    traits = card.build_traits(
        choice.name, provider="openai", server_address=host, endpoint="" if server is None else server.endpoint
    )
    return client, traits


async def ask_list(name: str, server: Server | None) -> Listed:
    """What the server's list says of a model. Raises ModelFailed."""
    async with build_client(server, max_bytes=MAX_LIST_BYTES) as client:
        if client.base_url.host == OFFICIAL_HOST:
            return Listed()  # its list has no lengths
        try:
            async with asyncio.timeout(ASK_LIMIT_S):
                listed = await read_list(await client.get("/models", cast_to=httpx2.Response), name)
                return replace(listed, context_tokens=listed.context_tokens or await _ask_lm_studio(client, name))
        except (OpenAIError, *TRANSPORT, *MALFORMED) as error:
            raise build_list_failure(error) from error


async def _ask_lm_studio(client: AsyncOpenAI, name: str) -> int | None:
    """The same from the list of LM Studio's own API; None if the server has no such API, but perhaps a page for it."""
    root = str(client.base_url).removesuffix("/").removesuffix("/v1")
    try:
        listed = await client.get(f"{root}/api/v0/models", cast_to=httpx2.Response)
        return (await read_list(listed, name)).context_tokens
    except (APIStatusError, ValueError, RecursionError):
        return None


def build_client(server: Server | None, *, max_bytes: int | None = None) -> AsyncOpenAI:
    """A client of this server, or of OpenAI's; with `max_bytes`, for whole replies that are not streamed."""
    return AsyncOpenAI(
        # Without any key, the SDK would read that of its provider. The hooks remove this one.
        api_key=server and (server.api_key or "none"),
        base_url=server and server.base_url,
        max_retries=0,
        timeout=TIMEOUT,
        http_client=DefaultAsyncHttpxClient(
            follow_redirects=False, event_hooks=build_event_hooks(server, max_bytes=max_bytes)
        ),
    )


class OpenAIModel:
    """One model of one client. The caller retries: `build_model` disables the SDK's own retries."""

    def __init__(
        self, client: AsyncOpenAI, traits: ModelTraits, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client = client
        self._traits = traits
        self._now = now
        self._usage = UsageChecker(traits)
        self._learner = DialectLearner(traits, self._find_first_dialect())
        self._path = "/chat/completions"
        if isinstance(client, AsyncAzureOpenAI) and "/deployments" not in client.base_url.path:
            self._path = f"/deployments/{quote(traits.name, safe='')}{self._path}"

    @property
    def traits(self) -> ModelTraits:
        return self._traits

    def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """Stream one reply; closing the generator closes the HTTP response."""
        return self._usage.end_filtered(self._generate(request), request)

    async def _generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        try:
            async with aclosing(normalize_pieces(split_thinking(self._stream(request)))) as pieces:
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
        async with (
            await self._open_stream(request, self._ask) as stream,
            aclosing(reply.read_events(stream, DAMAGES)) as chunks,
        ):
            async for chunk in chunks:
                for piece in reply.read(chunk):
                    yield piece
                if reply.error is not None:
                    raise build_error_object_failure(reply.error, stream.response.headers, self._now())
        is_ended = reply.ends_with_usage or (reply.chars and has_end_mark(stream.response))
        reason = reply.finish_reason or ("stop" if is_ended else None)
        if reason is None:
            raise build_cut_failure(stream.response.headers, self._now(), has_events=reply.has_events)
        usage = self._usage.complete(reply.usage, request, reply.chars)
        yield ReplyFinished(_finish_reason(reason), usage, reply.response_model, reply.response_id)

    def _find_first_dialect(self) -> Dialect:
        # OpenAI's newer models refuse `max_tokens`; many compatible servers accept nothing else.
        official = self._client.base_url.host == OFFICIAL_HOST or isinstance(self._client, AsyncAzureOpenAI)
        return Dialect(frozenset({"max_tokens"}) if official else frozenset())

    async def _open_stream(self, request: ModelRequest, ask: Callable[[ModelRequest, Dialect, int], Awaitable[T]]) -> T:
        """What `ask` returns in the form that the server accepts."""
        return await self._learner.ask(
            self._traits.limit_reply(request.max_output_tokens),
            lambda dialect, max_tokens: ask(request, dialect, max_tokens),
            APIStatusError,
            lambda refusal: (refusal.status_code, _read_message(refusal)),
            kind=(bool(request.tools), request.reply_form is not None),
        )

    async def _ask(self, request: ModelRequest, dialect: Dialect, max_tokens: int) -> AsyncStream[ChatCompletionChunk]:
        return await self._client.post(
            self._path,
            content=await build_body(request, lambda: self._build_fields(request, dialect, max_tokens)),
            cast_to=ChatCompletion,
            # The SDK reads a whole reply as a stream, too: `bounded_http` makes one event of it.
            stream=True,
            stream_cls=AsyncStream[ChatCompletionChunk],
        )

    def _build_fields(self, request: ModelRequest, dialect: Dialect, max_tokens: int) -> dict[str, object]:
        is_streamed = dialect.accepts("stream")
        return {
            "model": self._traits.name,
            "messages": render_messages(dialect.arrange(request.messages)),
            "tools": [_render_tool(tool) for tool in request.tools] or None,
            "tool_choice": _render_choice(request.force_tool) if request.force_tool else None,
            "response_format": _render_form(request.reply_form) if request.reply_form else None,
            "max_tokens" if dialect.accepts("max_tokens") else "max_completion_tokens": max_tokens,
            "stream": is_streamed,
            "stream_options": {"include_usage": True} if is_streamed and dialect.accepts("stream_options") else None,
        }

    def _build_failure(self, error: APIError, status: int, headers: httpx2.Headers) -> ModelFailed:
        kind = error.type if error.code is None else error.code
        return build_failure(status=status, kind=kind, message=_read_message(error), headers=headers, now=self._now())


class ReplyReader(StreamedReply):
    """Folds the chunks of one reply into pieces; holds the usage and the finish reason until the end.

    The SDK does not validate what a server sends, so chunks are matched by shape and all others are skipped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.usage: ModelUsage | None = None
        self.finish_reason: str | None = None
        self.ends_with_usage = False
        """Whether the last chunk has usage and no choice: the API sends it after the reply, and some servers send it
        without any finish reason before it."""
        self.error: Mapping[str, object] | None = None
        """The fields of the error that ended the reply."""
        self._calls = ToolCallReader()
        self._has_deltas = False
        """Whether a text or a call was read from a delta."""
        self._has_reasoning = False

    def read(self, chunk: object) -> list[ModelPiece]:
        """The pieces that a chunk carries."""
        if not isinstance(chunk, ChatCompletionChunk):
            return []
        choice = _try_find_choice(chunk)
        # Kimi puts the usage into the choice.
        counted = _try_read_usage(chunk)
        self.usage = counted or _try_read_usage(choice) or self.usage
        self.ends_with_usage = counted is not None and choice is None
        self.response_model = try_read_token(getattr(chunk, "model", None)) or self.response_model
        self.response_id = try_read_token(getattr(chunk, "id", None)) or self.response_id
        self.error = try_find_error(read_fields(chunk)) or try_find_error(read_fields(choice)) or self.error
        reason = try_read_token(getattr(choice, "finish_reason", None))
        if reason in _FAILED_ENDS:
            self.error = self.error or {"message": f"finish reason {reason}"}
        elif self.finish_reason != "refusal":  # after the text of a refusal the API closes with "stop"
            self.finish_reason = reason or self.finish_reason
        if reason is not None:
            self.end_within(USAGE_WAIT_S)
        pieces = self._read_delta(getattr(choice, "delta", None))
        self._has_reasoning = self._has_reasoning or any(isinstance(piece, ReasoningDelta) for piece in pieces)
        self._has_deltas = self._has_deltas or any(not isinstance(piece, ReasoningDelta) for piece in pieces)
        # Some servers send a whole message in place of deltas, others (MiniMax) after them.
        if not self._has_deltas:
            for each in self._read_delta(getattr(choice, "message", None)):
                if isinstance(each, TextDelta):
                    pieces += map(TextDelta, split_text(each.text))
                elif isinstance(each, ReasoningDelta) and self._has_reasoning:
                    self.chars -= len(each.text)
                else:
                    pieces.append(each)
        return pieces

    def _read_delta(self, delta: object) -> list[ModelPiece]:
        fields = read_fields(delta)
        pieces = _read_content(fields.get("content"))
        if thought := next((text for name in _REASONING_FIELDS if (text := _read_text(fields.get(name)))), ""):
            pieces.insert(0, ReasoningDelta(thought))
        if refused := _read_text(fields.get("refusal")):
            self.finish_reason = "refusal"
            pieces.append(TextDelta(refused))
        self.chars += sum(len(piece.text) for piece in pieces if isinstance(piece, TextDelta | ReasoningDelta))
        for call in self._read_calls(fields.get("tool_calls")):
            self.chars += len(call.name) + len(call.arguments)
            pieces.append(call)
        return pieces

    def _read_calls(self, sent: object) -> Iterator[ToolCallDelta]:
        for each in map(read_fields, cast("list[object]", sent) if isinstance(sent, list) else []):
            function = read_fields(each.get("function"))
            call = self._calls.read(
                index=each.get("index"),
                call_id=each.get("id"),
                name=function.get("name"),
                arguments=function.get("arguments"),
            )
            if call is not None:
                yield call


def _read_message(error: APIError) -> str:
    """The server's words: the SDK finds them only where OpenAI has them."""
    found = read_fields(error.body).get("message")
    if error.body is None or (found and isinstance(found, str)):
        return error.message
    return f"{error.message} - {read_text(error.body)}"


def _try_find_choice(chunk: ChatCompletionChunk) -> Choice | None:
    match getattr(chunk, "choices", None):
        case [Choice() as choice, *_]:
            return choice
        case _:
            return None


def _read_content(content: object) -> list[ModelPiece]:
    """The content of a delta: a text, or a list of parts of the types `text` and `thinking`, as Mistral sends."""
    if not isinstance(content, list):
        return [TextDelta(text)] if (text := _read_text(content)) else []
    pieces: list[ModelPiece] = []
    for part in map(read_fields, cast("list[object]", content)):
        if text := _read_text(part.get("text")):
            pieces.append(TextDelta(text))
        thought = part.get("thinking")
        for each in cast("list[object]", thought) if isinstance(thought, list) else [thought]:
            if text := _read_text(read_fields(each).get("text", each)):
                pieces.append(ReasoningDelta(text))
    return pieces


def _read_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def render_messages(messages: Sequence[PromptMessage]) -> list[ChatCompletionMessageParam]:
    """The API's messages. It caches prefixes automatically, so cache points are not sent."""
    sent_ids = number_calls(messages)
    return [rendered for message in messages for rendered in _render_message(message, sent_ids)]


def number_calls(messages: Sequence[PromptMessage]) -> dict[str, str]:
    """Ids for the calls that every server accepts, in the order in which they appear: Mistral's API accepts nothing but
    nine letters and digits."""
    parts = [part for message in messages for part in message.parts]
    calls = [part.call_id for part in parts if isinstance(part, ToolCallPart)]
    return {call_id: f"call{number:05}" for number, call_id in enumerate(calls, start=1)}


def _render_message(message: PromptMessage, sent_ids: Mapping[str, str]) -> Iterator[ChatCompletionMessageParam]:
    """A message without media has one text: not every server accepts a list of parts."""
    match message.role:
        case "tool":
            for part in message.parts:
                if isinstance(part, ToolResultPart):
                    yield {"role": "tool", "tool_call_id": sent_ids[part.call_id], "content": part.text}
        case "assistant":
            calls = [_render_call(part, sent_ids) for part in message.parts if isinstance(part, ToolCallPart)]
            text = _join_texts(message)
            if calls:
                yield {"role": "assistant", "content": text or None, "tool_calls": calls}
            else:
                yield {"role": "assistant", "content": text}
        case "system":
            yield {"role": "system", "content": _join_texts(message)}
        case "user":
            if any(isinstance(part, MediaPart) for part in message.parts):
                parts = [part for part in message.parts if isinstance(part, TextPart | MediaPart)]
                yield {"role": "user", "content": [_render_part(part) for part in parts]}
            else:
                yield {"role": "user", "content": _join_texts(message)}


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


def _join_texts(message: PromptMessage) -> str:
    return "\n\n".join(part.text for part in message.parts if isinstance(part, TextPart))


def _render_part(part: RecordPart) -> ChatCompletionContentPartParam:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    url = f"data:{part.mime};base64,{refer_to(part.data)}"
    if part.mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": part.name, "file_data": url}}


def _finish_reason(reason: str) -> FinishReason:
    match reason:
        case "length" | "model_length" | "model_context_window_exceeded" | "max_tokens":  # two of Mistral and Z.ai
            return "length"
        case "content_filter" | "sensitive":  # the second is Z.ai's
            return "content_filter"
        case "refusal":
            return "refusal"
        case _:  # "stop", and "tool_calls", "function_call" or "tool_use" after calls
            return "stop"


def _try_read_usage(sent: object) -> ModelUsage | None:
    """The usage of a chunk or choice; None if its counts are missing or invalid, then we estimate."""
    usage = read_fields(read_fields(sent).get("usage"))
    prompt, completion = try_read_count(usage.get("prompt_tokens")), try_read_count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    # xAI and Gemini count what the model thought in the total only.
    total = try_read_count(usage.get("total_tokens")) or 0
    details = read_fields(usage.get("prompt_tokens_details"))
    # DeepSeek and Kimi have names of their own for what was cached.
    cached = (details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens"))
    return ModelUsage(
        input_tokens=prompt,
        output_tokens=max(completion, total - prompt),
        cache_read_tokens=min(next((count for each in cached if (count := try_read_count(each))), 0), prompt),
        cache_write_tokens=min(try_read_count(details.get("cache_write_tokens")) or 0, prompt),
    )
