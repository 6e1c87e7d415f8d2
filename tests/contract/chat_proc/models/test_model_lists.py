"""What a worker asks of the servers of models that no card describes, and what it does without a usable answer."""

from collections.abc import Mapping
from typing import Any

import pytest
from helpers.provider import Answer, WireProvider
from structlog.testing import capture_logs
from structlog.typing import EventDict

from chat_proc.model_choice import choose_models
from chat_proc.models.cards import UNKNOWN_CONTEXT_TOKENS
from chat_proc.models.model_lists import MAX_LIST_BYTES
from chat_proc.settings import ModelSettings, OperatorConfig, WorkerSettings
from everturn_local.ports import load_free_port

LISTED = {"object": "model", "created": 1, "owned_by": "someone"}
VLLM = {**LISTED, "id": "mine", "root": "/models/mine", "parent": None, "max_model_len": 32_768, "permission": []}
META = {"vocab_type": 2, "n_vocab": 151_936, "n_embd": 4_096, "n_params": 8_190_735_360, "size": 5_022_924_800}
LLAMA_CPP = {**LISTED, "id": "/models/mine.gguf", "meta": {**META, "n_ctx": 16_384, "n_ctx_train": 131_072}}
OLD_LLAMA_CPP = {**LISTED, "id": "/models/mine.gguf", "meta": {**META, "n_ctx_train": 40_960}}
OPENROUTER = {"id": "mine", "context_length": 65_536, "top_provider": {"max_completion_tokens": None}, "pricing": {}}
ANTHROPIC = {"id": "mine", "type": "model", "display_name": "Mine", "max_input_tokens": 200_000, "max_tokens": 64_000}
LM_STUDIO = {"id": "mine", "object": "model", "type": "llm", "max_context_length": 131_072}
OTHER = {**LISTED, "id": "other", "max_model_len": 1_024}


async def load_context(models: Mapping[str, Any], model: str = "local:mine") -> tuple[int, list[EventDict]]:
    """The context length of the model that a worker with this configuration uses, and its logs."""
    settings = WorkerSettings(
        database_url="postgresql://w@h/n", redis_url="redis://h/0", objects_url="file:///none", model=model
    )
    with capture_logs() as logs:
        roles = await choose_models(settings, OperatorConfig.model_validate({"models": models}))
        return roles.model("decision").traits.context_tokens, [dict(log) for log in logs]


async def find_problem(models: Mapping[str, Any]) -> str:
    """What is wrong with the model, according to its server."""
    settings = ModelSettings(model="local:mine")
    roles = await choose_models(settings, OperatorConfig.model_validate({"models": models}))
    return roles.listed["local:mine"].problem


def configure(provider: WireProvider, protocol: str = "openai", **more: Any) -> dict[str, Any]:
    base_url = provider.url + ("/v1" if protocol == "openai" else "")
    return {"endpoints": {"local": {"protocol": protocol, "base_url": base_url}}, **more}


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("listed", "tokens"),
    [
        ([OTHER, VLLM], 32_768),
        ([LLAMA_CPP], 16_384),
        ([OLD_LLAMA_CPP], 40_960),
        ([OTHER, OPENROUTER], 65_536),
        ([ANTHROPIC, OTHER], 200_000),
    ],
)
async def test_the_context_length_that_a_server_states_is_used(
    provider: WireProvider, protocol: str, listed: list[Any], tokens: int
) -> None:
    provider.answer_page("/v1/models", {"object": "list", "data": listed})

    found, logs = await load_context(configure(provider, protocol))

    assert found == tokens
    assert [received.path.partition("?")[0] for received in provider.read] == ["/v1/models"]
    (log,) = logs
    assert log["context_tokens"] == tokens
    assert "context_tokens" not in log["assumed"]


@pytest.mark.parametrize(
    ("listed", "tokens"),
    [
        ({**LM_STUDIO, "state": "loaded", "loaded_context_length": 8_192}, 8_192),
        ({**LM_STUDIO, "state": "not-loaded"}, 131_072),
    ],
)
async def test_lm_studio_states_it_in_a_list_of_its_own(
    provider: WireProvider, listed: dict[str, Any], tokens: int
) -> None:
    provider.answer_page("/v1/models", {"object": "list", "data": [{**LISTED, "id": "mine"}, OTHER]})
    provider.answer_page("/api/v0/models", {"object": "list", "data": [OTHER, listed]})

    assert (await load_context(configure(provider)))[0] == tokens
    assert [received.path for received in provider.read] == ["/v1/models", "/api/v0/models"]


async def test_a_page_in_place_of_that_list_states_nothing(provider: WireProvider) -> None:
    provider.answer_page("/v1/models", {"data": [{**LISTED, "id": "mine"}]})
    provider.pages["/api/v0/models"] = Answer([b"<html>"])

    found, logs = await load_context(configure(provider))

    assert (found, len(logs)) == (UNKNOWN_CONTEXT_TOKENS, 1)


async def test_the_server_that_the_variables_of_a_provider_name_is_asked_too(
    provider: WireProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "its-key")
    provider.answer_page("/v1/models", {"data": [VLLM]})

    assert (await load_context({}, "openai:mine"))[0] == 32_768
    assert provider.read[0].headers["authorization"] == "Bearer its-key"


@pytest.mark.parametrize(
    ("models", "model"),
    [
        ({"cards": {"mine": {"context_tokens": 50_000}}}, "local:mine"),
        ({}, "local:claude-haiku-4-5"),
        ({}, "offline"),
    ],
)
async def test_nothing_is_asked_if_the_length_is_known(
    provider: WireProvider, models: dict[str, Any], model: str
) -> None:
    provider.answer_page("/v1/models", {"data": [VLLM]})

    await load_context(configure(provider, **models), model)

    assert provider.read == []


async def test_a_model_of_several_roles_is_asked_about_once(provider: WireProvider) -> None:
    provider.answer_page("/v1/models", {"data": [VLLM, OTHER]})

    await load_context(configure(provider, roles={"title": "local:mine", "summary": "local:other"}))

    assert len(provider.read) == 2


@pytest.mark.parametrize(
    "listed",
    [
        {"data": [OTHER, {**LISTED, "id": "mine"}]},
        {"data": [OTHER, {**OTHER, "id": "another"}]},
        {"data": [{**VLLM, "max_model_len": bad} for bad in (None, 0, -1, "32768", True, 1e30)]},
        {"data": [None, "mine", ["mine"], {"id": "mine", "meta": ["n_ctx"]}]},
        {"data": {"id": "mine"}},
        {"models": [VLLM]},
        {"error": {"type": "overloaded_error", "message": "Later."}},
        [VLLM],
        None,
    ],
)
async def test_a_server_that_states_no_length_leaves_the_default(provider: WireProvider, listed: Any) -> None:
    provider.answer_page("/v1/models", listed)

    found, logs = await load_context(configure(provider))

    assert found == UNKNOWN_CONTEXT_TOKENS
    (log,) = logs
    assert (log["log_level"], log["event"]) == ("warning", "Loaded a model card")
    assert "context_tokens" in log["assumed"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer([b"{}"], status=401), "401"),
        (Answer([b"{}"], status=404), "404"),
        (Answer([b"{}"], status=500), "500"),
        (Answer([b'{"data": ['], cut=True), "RemoteProtocolError"),
        (Answer([b"<html>"]), "JSONDecodeError"),
        (Answer([b'{"\xff']), "UnicodeDecodeError"),
        (Answer([b"[" * 100_000]), "RecursionError"),
        (Answer([b'{"data": ['], hang=True), "TimeoutError"),
    ],
)
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_server_that_can_not_be_asked_is_logged_and_leaves_the_default(
    provider: WireProvider, monkeypatch: pytest.MonkeyPatch, protocol: str, answer: Answer, reason: str
) -> None:
    monkeypatch.setattr(f"chat_proc.models.{protocol}.ASK_LIMIT_S", 0.5)
    provider.pages["/v1/models"] = answer

    found, logs = await load_context(configure(provider, protocol))

    assert found == UNKNOWN_CONTEXT_TOKENS
    failed, card = logs
    assert (failed["log_level"], failed["model"]) == ("warning", "local:mine")
    assert reason in failed["provider_text"]
    assert "context_tokens" in card["assumed"]


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ([OTHER, VLLM], ""),
        ([LLAMA_CPP], ""),
        ([{**LISTED, "id": "mine:latest"}], ""),
        ([OTHER], "its server does not list this name, only other"),
        (
            [{"id": f"m{n}"} for n in range(400)],
            "its server does not list this name, only m0, m1, m2, m3, m4 and 395 more",
        ),
        ([], "its server lists no models"),
        (None, "its server lists no models"),
    ],
)
async def test_a_name_that_a_server_does_not_list_is_a_problem(
    provider: WireProvider, listed: Any, problem: str
) -> None:
    provider.answer_page("/v1/models", {"object": "list", "data": listed})

    assert await find_problem(configure(provider)) == problem


async def test_a_list_that_can_not_be_read_is_a_problem_with_its_cause(provider: WireProvider) -> None:
    provider.pages["/v1/models"] = Answer([b"<html>\n" * 1_000], status=404)

    problem = await find_problem(configure(provider))

    assert problem.startswith("its server's list of models can't be read: NotFoundError: ")
    assert len(problem) < 700 and "\n" not in problem


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_list_without_an_end_is_read_up_to_its_limit(provider: WireProvider, protocol: str) -> None:
    blank = b"\n\n" * 2**15
    provider.pages["/v1/models"] = Answer([blank] * (MAX_LIST_BYTES // len(blank) + 1), hang=True)

    found, logs = await load_context(configure(provider, protocol))

    assert found == UNKNOWN_CONTEXT_TOKENS
    assert f"more than {MAX_LIST_BYTES} bytes" in str(logs[0])


async def test_a_server_that_does_not_run_leaves_the_default() -> None:
    endpoint = {"protocol": "openai", "base_url": f"http://127.0.0.1:{load_free_port()}/v1"}

    found, logs = await load_context({"endpoints": {"local": endpoint}})

    assert found == UNKNOWN_CONTEXT_TOKENS
    assert logs[0]["provider_text"].startswith("ConnectError")
