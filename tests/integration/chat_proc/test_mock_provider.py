"""The adapters against aimock, whose authors wrote the providers' wire formats down independently of us."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from helpers.aimock import run_aimock

from chat_proc.models import anthropic, azure, openai, openai_responses
from chat_proc.models.cards import ModelCards
from chat_proc.models.endpoints import Server
from chat_proc.models.roles import ModelChoice
from everturn.models.port import (
    ModelFailed,
    ModelRequest,
    ModelUsage,
    PromptMessage,
    ReasoningDelta,
    ReplyFinished,
    TextPart,
    ToolCallPart,
    ToolDeclaration,
    ToolResultPart,
)
from everturn_testing.models.model_contract import PARAMETERS, collect_pieces, join_calls, join_text

pytestmark = pytest.mark.timeout(400)

TOOLS = tuple(ToolDeclaration(name, f"Runs {name}.", PARAMETERS) for name in ("read", "write"))
SYSTEM = PromptMessage("system", (TextPart("Be brief."),))


def build_endpoint(build: Callable[..., Any], path: str, name: str) -> Callable[[str, ModelCards], Any]:
    """Builds a model of an endpoint, as a worker does."""
    return lambda url, cards: build(ModelChoice("mock", name, "test"), cards, Server("mock", url + path, None))


SERVERS = {
    "OpenAI": build_endpoint(openai.build_model, "/v1", "gpt-5"),
    "OpenAI Responses": build_endpoint(openai_responses.build_model, "/v1", "gpt-5"),
    "OpenRouter": build_endpoint(openai.build_model, "/api/v1", "openai/gpt-5"),
    "Azure": lambda _url, cards: azure.build_model(ModelChoice("mock", "gpt-5", "test"), cards),
    "Anthropic": build_endpoint(anthropic.build_model, "", "claude-opus-4-8"),
}
"""What aimock speaks, with a model that reasons there. Its streams for Bedrock lack the encoding of each event."""


@pytest.fixture(scope="module")
def aimock(pytestconfig: pytest.Config) -> Iterator[str]:
    with run_aimock(pytestconfig.rootpath / ".pytest_cache" / "aimock") as url:
        yield url


@pytest.fixture(params=SERVERS)
async def model(aimock: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """A model as a worker builds it."""
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", aimock)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_VERSION", "2025-04-01-preview")
    adapter = SERVERS[request.param](aimock, ModelCards())
    yield adapter
    await adapter.aclose()


def ask(text: str, *more: PromptMessage) -> ModelRequest:
    return ModelRequest((SYSTEM, PromptMessage("user", (TextPart(text),)), *more), 1_000, TOOLS)


async def test_a_text_arrives_with_its_usage(model: Any) -> None:
    pieces = await collect_pieces(model, ask("Say hello."))

    finish = pieces[-1]
    assert join_text(pieces) == "Hello there, how are you today?"
    assert isinstance(finish, ReplyFinished)
    assert (finish.reason, finish.usage) == ("stop", ModelUsage(100, 20, cost_known=False))


async def test_reasoning_arrives_apart_from_the_text(model: Any) -> None:
    pieces = await collect_pieces(model, ask("Think first."))

    assert "".join(piece.text for piece in pieces if isinstance(piece, ReasoningDelta)) == "A greeting is asked for."
    assert join_text(pieces) == "Done."


CALLS = {
    "Run one.": [("read", "call_1", '{"n":1}')],
    "Run three.": [
        ("read", "call_1", '{"n":1}'),
        ("write", "call_2", '{"text":"more than one piece of the stream has room for"}'),
        ("read", "call_3", "{}"),
    ],
}


@pytest.mark.parametrize("text", CALLS)
async def test_calls_arrive_and_their_results_are_accepted(model: Any, text: str) -> None:
    pieces = await collect_pieces(model, ask(text))
    calls = join_calls(pieces)
    parts = tuple(ToolCallPart(call_id, name, arguments) for name, call_id, arguments in calls)
    results = [PromptMessage("tool", (ToolResultPart(part.call_id, "It ran."),)) for part in parts]
    answer = await collect_pieces(model, ask(text, PromptMessage("assistant", parts), *results))

    assert calls == CALLS[text]
    assert join_text(pieces) == ("Let me see." if len(calls) == 1 else "")
    assert join_text(answer) == "They ran."


async def test_a_reply_that_the_limit_cuts_says_so(model: Any) -> None:
    pieces = await collect_pieces(model, ask("Write less."))

    assert isinstance(pieces[-1], ReplyFinished)
    assert pieces[-1].reason == "length"


async def test_an_error_says_what_it_is_and_when_to_retry(model: Any) -> None:
    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, ask("Fail."))

    failure = raised.value
    assert (failure.kind, failure.retryable, failure.retry_after_s) == ("rate_limited", True, 1)
    assert "Rate limited" in failure.provider_text


async def test_a_lost_connection_in_the_middle_is_a_passing_failure(model: Any) -> None:
    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, ask("Break off."))

    assert raised.value.retryable
    assert raised.value.kind in ("connection", "cut_reply")


async def test_a_request_without_a_reply_is_a_failure(model: Any) -> None:
    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, ask("What nobody prepared."))

    assert raised.value.kind == "overloaded"
