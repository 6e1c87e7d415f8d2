"""The contract of LanguageModel as tests: subclass it and define a `model` that answers every request."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

import pytest

from everturn.models.port import (
    IMAGE_MIMES,
    PDF_MIME,
    JsonReply,
    LanguageModel,
    MediaPart,
    ModelPiece,
    ModelRequest,
    PromptMessage,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolDeclaration,
    ToolResultPart,
    encode_media,
)

PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}}
"""The JSON schema of both tools of `build_native_request`."""

_TIMEOUT_S = 10.0


def build_request(text: str = "Say hello.", *, system: str = "You are helpful.") -> ModelRequest:
    """A small request: one system and one user message."""
    messages = (
        PromptMessage("system", (TextPart(system, cache_point=True),)),
        PromptMessage("user", (TextPart(text),)),
    )
    return ModelRequest(messages, max_output_tokens=512)


async def collect_pieces(model: LanguageModel, request: ModelRequest) -> list[ModelPiece]:
    """Every piece of one reply; raises what the model raises, and TimeoutError after ten seconds."""
    async with asyncio.timeout(_TIMEOUT_S), aclosing(model.generate(request)) as pieces:
        return [piece async for piece in pieces]


def join_text(pieces: list[ModelPiece]) -> str:
    """The text of the reply."""
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))


def build_native_request() -> ModelRequest:
    """A request with two tools and two rounds of calls in the provider's own form."""
    tools = tuple(ToolDeclaration(name, f"Runs {name}.", PARAMETERS) for name in ("read", "write"))
    messages = (
        PromptMessage("system", (TextPart("Be brief.", cache_point=True),)),
        PromptMessage("user", (TextPart("Run both."),)),
        PromptMessage(
            "assistant",
            (
                TextPart("Both."),
                TextPart("At once."),
                ToolCallPart("call_1", "read", '{"n": 1}'),
                ToolCallPart("call_2", "write", "{}"),
            ),
        ),
        PromptMessage("tool", (ToolResultPart("call_1", "one"),)),
        PromptMessage("tool", (ToolResultPart("call_2", "", cache_point=True),)),
        PromptMessage("user", (TextPart("And now?"),)),
        PromptMessage("assistant", (ToolCallPart("call_3", "read", "{}"),)),
        PromptMessage("tool", (ToolResultPart("call_3", "three", cache_point=True),)),
    )
    return ModelRequest(messages, 99, tools)


def build_forced_request() -> ModelRequest:
    """A request whose reply must be a call to `read`."""
    tools = (ToolDeclaration("read", "Runs read.", PARAMETERS),)
    return ModelRequest((PromptMessage("user", (TextPart("Read."),)),), 99, tools, force_tool="read")


def build_json_request(schema: Mapping[str, object] | None = PARAMETERS) -> ModelRequest:
    """A request whose reply must be a JSON object."""
    messages = (PromptMessage("user", (TextPart("Reply with JSON."),)),)
    return ModelRequest(messages, 99, reply_form=JsonReply(schema))


def join_calls(pieces: list[ModelPiece]) -> list[tuple[str, str, str]]:
    """Name, id and arguments of each call of a reply, in order; checks that only the first piece of each has a name."""
    deltas = [piece for piece in pieces if isinstance(piece, ToolCallDelta)]
    calls: dict[int, tuple[str, str, str]] = {}
    for delta in deltas:
        assert bool(delta.name) == (delta.index not in calls)
        name, call_id, arguments = calls.get(delta.index, (delta.name, delta.call_id, ""))
        calls[delta.index] = name, call_id, arguments + delta.arguments
    assert list(calls) == list(range(len(calls)))
    return list(calls.values())


class LanguageModelContract:
    """Required of every LanguageModel. A subclass defines the fixture `model`; its replies have at least two pieces."""

    @pytest.fixture
    def model(self) -> LanguageModel:
        raise NotImplementedError

    async def test_a_reply_ends_with_exactly_one_finish(self, model: LanguageModel) -> None:
        pieces = await collect_pieces(model, build_request())

        finishes = [piece for piece in pieces if isinstance(piece, ReplyFinished)]
        assert len(finishes) == 1
        assert pieces[-1] is finishes[0]

    async def test_a_request_with_tools_and_their_results_is_answered(self, model: LanguageModel) -> None:
        assert join_text(await collect_pieces(model, build_native_request()))

    async def test_a_request_for_a_call_or_for_json_is_answered(self, model: LanguageModel) -> None:
        assert await collect_pieces(model, build_forced_request())
        assert await collect_pieces(model, build_json_request())

    async def test_pieces_of_text_are_never_empty(self, model: LanguageModel) -> None:
        pieces = await collect_pieces(model, build_request())

        assert all(piece.text for piece in pieces if isinstance(piece, TextDelta | ReasoningDelta))
        assert join_text(pieces)

    async def test_the_usage_counts_the_cached_tokens_among_the_input(self, model: LanguageModel) -> None:
        pieces = await collect_pieces(model, build_request())

        finish = pieces[-1]
        assert isinstance(finish, ReplyFinished)
        assert finish.usage.input_tokens >= finish.usage.cache_read_tokens + finish.usage.cache_write_tokens
        assert finish.usage.input_tokens > 0
        assert finish.usage.output_tokens > 0
        assert finish.usage.cost_usd >= 0

    async def test_closing_a_reply_early_leaves_the_model_usable(self, model: LanguageModel) -> None:
        async with asyncio.timeout(_TIMEOUT_S), aclosing(model.generate(build_request())) as pieces:
            first = await anext(pieces)

        again = await collect_pieces(model, build_request())

        assert not isinstance(first, ReplyFinished)
        assert isinstance(again[-1], ReplyFinished)

    async def test_a_cancelled_reply_raises_the_cancellation(self, model: LanguageModel) -> None:
        started = asyncio.Event()

        async def consume_one_piece() -> None:
            async with aclosing(model.generate(build_request())) as pieces:
                await anext(pieces)
                started.set()
                await asyncio.Event().wait()

        async with asyncio.timeout(_TIMEOUT_S):
            task = asyncio.create_task(consume_one_piece())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def test_two_replies_at_once_do_not_mix(self, model: LanguageModel) -> None:
        first, second = await asyncio.gather(
            collect_pieces(model, build_request()), collect_pieces(model, build_request())
        )

        assert join_text(first) == join_text(second)
        assert isinstance(first[-1], ReplyFinished)
        assert isinstance(second[-1], ReplyFinished)

    @pytest.mark.parametrize("mime", sorted(IMAGE_MIMES | {PDF_MIME}))
    async def test_each_type_of_media_can_be_sent(self, model: LanguageModel, mime: str) -> None:
        parts = (TextPart("What is this?"), MediaPart(mime, encode_media(b"content"), "file"))

        pieces = await collect_pieces(model, ModelRequest((PromptMessage("user", parts),), max_output_tokens=512))

        assert isinstance(pieces[-1], ReplyFinished)

    def test_the_traits_describe_the_model(self, model: LanguageModel) -> None:
        assert model.traits.name
        assert model.traits.context_tokens > 0
