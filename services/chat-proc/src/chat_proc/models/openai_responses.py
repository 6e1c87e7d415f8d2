"""The OpenAI Responses API, and any server that speaks it, as a LanguageModel, over the official SDK.

Nothing is stored at the provider, and nothing that only it can read is kept here. So the reasoning items that the API
returns beside tool calls are not sent back: after a call, a model thinks again from the messages alone.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import cast

from openai import AsyncStream
from openai.types.responses import (
    EasyInputMessageParam,
    FunctionToolParam,
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseErrorEvent,
    ResponseFailedEvent,
    ResponseFormatTextConfigParam,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseFunctionToolCall,
    ResponseFunctionToolCallParam,
    ResponseIncompleteEvent,
    ResponseInputContentParam,
    ResponseInputItemParam,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseReasoningSummaryPartAddedEvent,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseReasoningTextDeltaEvent,
    ResponseRefusalDeltaEvent,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
)

from chat_proc.models.bodies import build_body, refer_to
from chat_proc.models.cards import ModelCards
from chat_proc.models.dialects import ONE_FORM, Dialect
from chat_proc.models.endpoints import Server
from chat_proc.models.openai import DAMAGES, OpenAIModel, build_parts, number_calls
from chat_proc.models.replies import build_cut_failure, build_failure, read_fields, try_read_count, try_read_token
from chat_proc.models.roles import ModelChoice
from chat_proc.models.streams import CLOSE_WAIT_S, StreamedReply
from chat_proc.models.tool_calls import ToolCallReader
from everturn.models.port import (
    FinishReason,
    JsonReply,
    MediaPart,
    ModelPiece,
    ModelRequest,
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


def build_model(choice: ModelChoice, cards: ModelCards, server: Server | None) -> "ResponsesModel":
    """The chosen model on this server; without one, key and base URL come from the SDK's own environment variables."""
    return ResponsesModel(*build_parts(choice, cards, server))


class ResponsesModel(OpenAIModel):
    """One model of one client over the Responses API. Its errors are those of Chat Completions."""

    def _find_first_dialect(self) -> Dialect:
        return ONE_FORM

    async def _ask_for_response(
        self, request: ModelRequest, _dialect: Dialect, max_tokens: int
    ) -> AsyncStream[ResponseStreamEvent]:
        return await self._client.post(
            "/responses",
            content=await build_body(request, lambda: self._build_input(request, max_tokens)),
            cast_to=Response,
            stream=True,
            stream_cls=AsyncStream[ResponseStreamEvent],
        )

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        stream = await self._open_stream(request, self._ask_for_response)
        reply = ReplyReader()
        async with stream, aclosing(reply.read_events(stream, DAMAGES)) as events:
            async for event in events:
                for piece in reply.read(event):
                    yield piece
                if reply.error is not None:
                    code, message = reply.error
                    headers = stream.response.headers
                    raise build_failure(status=200, kind=code, message=message, headers=headers, now=self._now())
        if reply.finish_reason is None:
            raise build_cut_failure(stream.response.headers, self._now(), has_events=reply.has_events)
        usage = self._usage.complete(reply.usage, request, reply.chars)
        yield ReplyFinished(reply.finish_reason, usage, reply.response_model, reply.response_id)

    def _build_input(self, request: ModelRequest, max_tokens: int) -> dict[str, object]:
        return {
            "model": self._traits.name,
            "input": render_input(request.messages),
            "tools": [_render_tool(tool) for tool in request.tools] or None,
            "tool_choice": {"type": "function", "name": request.force_tool} if request.force_tool else None,
            "text": {"format": _render_form(request.reply_form)} if request.reply_form else None,
            "max_output_tokens": max_tokens,
            # Without it a model thinks silently, and a long silence looks like a stall. Other models reject it.
            "reasoning": {"summary": "auto"} if "reasoning" in self._traits.abilities else None,
            "store": False,
            "stream": True,
        }


class ReplyReader(StreamedReply):
    """Folds the events of one reply into pieces; holds the usage, the finish reason and the error until the end.

    The SDK does not validate what a server sends, so events are matched by shape and all others are skipped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.usage: ModelUsage | None = None
        self.finish_reason: FinishReason | None = None
        self.error: tuple[object, object] | None = None
        """Its code and its message."""
        self._calls = ToolCallReader()
        self._streamed: set[object] = set()
        """The indexes of calls whose arguments came before the whole call."""
        self._whole: set[object] = set()
        """The indexes of calls whose arguments came with the whole call."""
        self._has_text_deltas = False
        self._has_output = False
        """Whether a text or a call was read."""
        self._has_reasoning = False
        self._is_refusal = False

    def read(self, event: object) -> list[ModelPiece]:
        """The pieces that an event carries."""
        pieces: list[ModelPiece] = []
        for piece in self._read_pieces(event):
            match piece:
                case ToolCallDelta():
                    self.chars += len(piece.name) + len(piece.arguments)
                    self._has_output = True
                case TextDelta():
                    self.chars += len(piece.text)
                    self._has_output = True
                case ReasoningDelta():
                    self.chars += len(piece.text)
            pieces.append(piece)
        self._read_response(event)
        return pieces

    def _read_pieces(self, event: object) -> Iterator[TextDelta | ReasoningDelta | ToolCallDelta]:
        match event:
            case ResponseTextDeltaEvent(delta=str(text)) if text:
                self._has_text_deltas = True
                yield TextDelta(text)
            case ResponseRefusalDeltaEvent(delta=str(text)):
                self._is_refusal = True
                if text:
                    self._has_text_deltas = True
                    yield TextDelta(text)
            case (
                ResponseReasoningSummaryTextDeltaEvent(delta=str(text))
                | ResponseReasoningTextDeltaEvent(delta=str(text))
            ) if text:
                self._has_reasoning = True
                yield ReasoningDelta(text)
            case ResponseReasoningSummaryPartAddedEvent() if self._has_reasoning:
                yield ReasoningDelta("\n\n")
            case ResponseOutputItemAddedEvent(item=ResponseFunctionToolCall() as call):
                # Some servers number each call 0.
                self._streamed.discard(_read_index(event))
                self._whole.discard(_read_index(event))
                yield from self._read_call(_read_index(event), call, None)
            case ResponseFunctionCallArgumentsDeltaEvent(delta=arguments):
                self._streamed.add(_read_index(event))
                yield from self._read_call(_read_index(event), None, arguments)
            case ResponseFunctionCallArgumentsDoneEvent(arguments=str(arguments), output_index=int(index)) if arguments:
                if index not in self._streamed | self._whole and (read := [*self._read_call(index, None, arguments)]):
                    self._streamed.add(index)
                    yield from read
            case ResponseOutputItemDoneEvent(item=item):
                yield from self._read_item(_read_index(event), item)
            case (
                ResponseCompletedEvent(response=Response(output=[*items]))
                | ResponseIncompleteEvent(response=Response(output=[*items]))
            ) if not self._has_output:
                for index, item in enumerate(items):
                    yield from self._read_item(index, item)
            case _:
                pass

    def _read_item(self, index: int | None, item: object) -> Iterator[TextDelta | ToolCallDelta]:
        """What a whole item says that was not streamed: some servers send no deltas."""
        match item:
            case ResponseFunctionToolCall():
                arguments = None if index in self._streamed else getattr(item, "arguments", None)
                yield from self._read_call(index, item, arguments)
                if arguments:
                    self._whole.add(index)
            case ResponseOutputMessage(content=[*parts]) if not self._has_text_deltas:
                for part in map(read_fields, cast("list[object]", parts)):
                    match part:
                        case {"text": str(text)} if text:
                            yield TextDelta(text)
                        case {"refusal": str(text)}:
                            self._is_refusal = True
                            if text:
                                yield TextDelta(text)
                        case _:
                            pass
            case _:
                pass

    def _read_call(self, index: int | None, call: object, arguments: object) -> Iterator[ToolCallDelta]:
        read = self._calls.read(
            index=index,
            call_id=getattr(call, "call_id", None),
            name=getattr(call, "name", None),
            arguments=arguments,
        )
        if read is not None:
            yield read

    def _read_response(self, event: object) -> None:
        """Read what is known of the reply as a whole."""
        match event:
            case ResponseErrorEvent():
                self.error = getattr(event, "code", None), getattr(event, "message", None)
            case ResponseFailedEvent(response=response):
                error = getattr(response, "error", None)
                self.error = getattr(error, "code", None), getattr(error, "message", None)
            case ResponseCreatedEvent(response=Response() as response):
                self._read_names(response)
            case (
                ResponseCompletedEvent(response=Response() as response)
                | ResponseIncompleteEvent(response=Response() as response)
            ):
                self._read_names(response)
                self.usage = _try_read_usage(getattr(response, "usage", None))
                self.finish_reason = self._find_reason(event, response)
                self.end_within(CLOSE_WAIT_S)
            case _:
                pass

    def _read_names(self, response: object) -> None:
        self.response_model = try_read_token(getattr(response, "model", None)) or self.response_model
        self.response_id = try_read_token(getattr(response, "id", None)) or self.response_id

    def _find_reason(self, event: object, response: object) -> FinishReason:
        reason = getattr(getattr(response, "incomplete_details", None), "reason", None)
        if reason == "content_filter":
            return "content_filter"
        # Some servers end a reply that was cut with the event of a complete one.
        is_cut = isinstance(event, ResponseIncompleteEvent) or getattr(response, "status", None) == "incomplete"
        if reason is not None or is_cut:
            return "length"  # "max_output_tokens", or a reason that is not known yet
        return "refusal" if self._is_refusal else "stop"


def render_input(messages: Sequence[PromptMessage]) -> list[ResponseInputItemParam]:
    """The API's items, without empty texts. It caches prefixes automatically, so cache points are not sent."""
    sent_ids = number_calls(messages)
    return [item for message in messages for item in _render_message(message, sent_ids)]


def _render_message(message: PromptMessage, sent_ids: Mapping[str, str]) -> Iterator[ResponseInputItemParam]:
    """Texts of an assistant and its calls are items of their own, as in the API's replies."""
    if message.role in ("system", "user"):
        parts = [
            part for part in message.parts if isinstance(part, MediaPart) or (isinstance(part, TextPart) and part.text)
        ]
        role = "system" if message.role == "system" else "user"
        if parts:
            yield EasyInputMessageParam(role=role, content=[_render_part(part) for part in parts])
        return
    for part in message.parts:
        match part:
            case TextPart(text=text) if text:
                yield EasyInputMessageParam(role="assistant", content=text)
            case ToolCallPart():
                # Without its `id`, the API does not ask for the reasoning that preceded it.
                yield ResponseFunctionToolCallParam(
                    type="function_call", call_id=sent_ids[part.call_id], name=part.name, arguments=part.arguments
                )
            case ToolResultPart():
                yield {"type": "function_call_output", "call_id": sent_ids[part.call_id], "output": part.text}
            case _:
                pass


def _render_part(part: RecordPart) -> ResponseInputContentParam:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    url = f"data:{part.mime};base64,{refer_to(part.data)}"
    if part.mime.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": part.name, "file_data": url}


def _render_tool(tool: ToolDeclaration) -> FunctionToolParam:
    """Not `strict`, which is the API's default and allows few schemas."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": False,
    }


def _render_form(form: JsonReply) -> ResponseFormatTextConfigParam:
    """A schema is not `strict`: the API would reject one with optional properties."""
    if form.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "name": "reply", "schema": dict(form.schema), "strict": False}


def _read_index(event: object) -> int | None:
    index = getattr(event, "output_index", None)
    return index if isinstance(index, int) else None


def _try_read_usage(usage: object) -> ModelUsage | None:
    """The provider's usage; None if its counts are missing or invalid, then we estimate. Reasoning counts as output."""
    sent = try_read_count(getattr(usage, "input_tokens", None))
    received = try_read_count(getattr(usage, "output_tokens", None))
    if sent is None or received is None:
        return None
    details = getattr(usage, "input_tokens_details", None)
    return ModelUsage(
        input_tokens=sent,
        output_tokens=received,
        cache_read_tokens=min(try_read_count(getattr(details, "cached_tokens", None)) or 0, sent),
        cache_write_tokens=min(try_read_count(getattr(details, "cache_write_tokens", None)) or 0, sent),
    )
