"""The model is chosen by the setting, else by the key that is there, else it is the offline demo."""

import pytest

from chat_proc.models.endpoints import Endpoint
from chat_proc.models.providers import PROVIDERS, BadModelSetting, choose_model, try_find_first_token_timeout_s
from chat_proc.models.roles import ModelChoice


def test_without_keys_and_setting_the_offline_demo_runs() -> None:
    assert choose_model({}) == ModelChoice("offline", "offline", "neither an API key nor EVERTURN_MODEL is set")


@pytest.mark.parametrize(
    ("environment", "provider", "name"),
    [
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic", PROVIDERS["anthropic"].default_model),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "anthropic", PROVIDERS["anthropic"].default_model),
        ({"OPENAI_API_KEY": "k"}, "openai", PROVIDERS["openai"].default_model),
        ({"OPENAI_API_KEY": "  "}, "offline", "offline"),
        ({"EVERTURN_MODEL": "", "OPENAI_API_KEY": "k"}, "openai", PROVIDERS["openai"].default_model),
        ({"EVERTURN_MODEL": "offline", "OPENAI_API_KEY": "k"}, "offline", "offline"),
        ({"EVERTURN_MODEL": "openai:qwen3:8b", "OPENAI_API_KEY": "k"}, "openai", "qwen3:8b"),
        ({"EVERTURN_MODEL": "anthropic:claude-x", "ANTHROPIC_API_KEY": "k"}, "anthropic", "claude-x"),
        ({"EVERTURN_MODEL": "scripted:/a/b.toml", "EVERTURN_MODE": "development"}, "scripted", "/a/b.toml"),
    ],
)
def test_the_setting_wins_over_keys(environment: dict[str, str], provider: str, name: str) -> None:
    choice = choose_model(environment)

    assert (choice.provider, choice.name) == (provider, name)
    assert choice.why


@pytest.mark.parametrize(
    "setting", ["gpt", "openai", "openai:", "openai: ", ":x", "offline:x", "OpenAI:x", "mistral:x"]
)
def test_a_malformed_setting_is_refused_with_the_forms_it_may_have(setting: str) -> None:
    with pytest.raises(BadModelSetting, match=r"EVERTURN_MODEL: .*Write <provider>:<name>.* or offline\."):
        choose_model({"EVERTURN_MODEL": setting, "OPENAI_API_KEY": "k"})


def test_a_provider_without_its_key_is_refused_at_the_start() -> None:
    with pytest.raises(BadModelSetting, match=r"OPENAI_API_KEY is not set.*; if OPENAI_BASE_URL is a server"):
        choose_model({"EVERTURN_MODEL": "openai:gpt-x", "ANTHROPIC_API_KEY": "k"})
    with pytest.raises(BadModelSetting, match="neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set"):
        choose_model({"EVERTURN_MODEL": "anthropic:claude-x", "OPENAI_API_KEY": "k"})


AZURE = {
    "AZURE_OPENAI_API_KEY": "k",
    "AZURE_OPENAI_ENDPOINT": "https://resource.test",
    "OPENAI_API_VERSION": "2025-04-01-preview",
}


def test_a_model_of_a_cloud_is_named_after_its_deployment() -> None:
    choice = choose_model({"EVERTURN_MODEL": "azure:my-deployment", "OPENAI_API_KEY": "k", **AZURE})

    assert (choice.provider, choice.name) == ("azure", "my-deployment")


def test_the_variables_of_a_cloud_alone_choose_no_model() -> None:
    assert choose_model(AZURE).provider == "offline"


@pytest.mark.parametrize("missing", AZURE)
@pytest.mark.parametrize("value", [None, " "])
def test_a_cloud_without_one_of_its_variables_is_refused_at_the_start(missing: str, value: str | None) -> None:
    environment = {name: text for name, text in AZURE.items() if name != missing}
    if value is not None:
        environment[missing] = value

    with pytest.raises(BadModelSetting, match=f"a model of azure, but .*{missing}.* is.* set"):
        choose_model({"EVERTURN_MODEL": "azure:my-deployment", **environment})


@pytest.mark.parametrize("mode", [{}, {"EVERTURN_MODE": "production"}])
def test_a_scripted_model_runs_in_development_only(mode: dict[str, str]) -> None:
    with pytest.raises(BadModelSetting, match="EVERTURN_MODE=development"):
        choose_model({"EVERTURN_MODEL": "scripted:/a/b.toml", **mode})


def test_a_scripted_model_needs_a_file() -> None:
    with pytest.raises(BadModelSetting, match=r"'scripted:' names no file\. Write scripted:FILE"):
        choose_model({"EVERTURN_MODEL": "scripted:", "EVERTURN_MODE": "development"})


ENDPOINTS = {
    "local": Endpoint(protocol="openai", base_url="http://127.0.0.1:8000/v1"),
    "gateway": Endpoint(protocol="anthropic", base_url="https://gateway.test", key_env="GATEWAY_KEY"),
}


def test_a_model_of_an_endpoint_is_named_after_it() -> None:
    local = choose_model({"EVERTURN_MODEL": "local:qwen3:8b"}, ENDPOINTS)
    gateway = choose_model({"EVERTURN_MODEL": "gateway:claude-x", "GATEWAY_KEY": "k"}, ENDPOINTS)

    assert (local.provider, local.name, local.full_name) == ("local", "qwen3:8b", "local:qwen3:8b")
    assert (gateway.provider, gateway.name) == ("gateway", "claude-x")


@pytest.mark.parametrize(
    ("name", "variable", "limit_s"),
    [
        ("local:m", "", 600),
        ("patient:m", "", 900),
        ("openai:m", "OPENAI_BASE_URL", 600),
        ("openai-responses:m", "OPENAI_BASE_URL", 600),
        ("anthropic:m", "ANTHROPIC_BASE_URL", 600),
        ("openai:m", "ANTHROPIC_BASE_URL", None),
        ("azure:m", "OPENAI_BASE_URL", None),
        ("bedrock:m", "ANTHROPIC_BEDROCK_BASE_URL", None),
    ],
)
def test_a_server_that_the_operator_names_has_more_time_for_its_first_token(
    name: str, variable: str, limit_s: float | None
) -> None:
    patient = Endpoint(protocol="openai", base_url="http://127.0.0.1:8000/v1", first_token_timeout_s=900)
    provider, _, model = name.partition(":")

    found = try_find_first_token_timeout_s(
        ModelChoice(provider, model, "test"), {variable: "http://127.0.0.1:9"}, {**ENDPOINTS, "patient": patient}
    )

    assert found == limit_s


@pytest.mark.parametrize("environment", [{}, {"GATEWAY_KEY": " "}])
def test_an_endpoint_without_its_key_is_refused_at_the_start(environment: dict[str, str]) -> None:
    with pytest.raises(BadModelSetting, match=r"endpoint gateway, but .* GATEWAY_KEY, is not set"):
        choose_model({"EVERTURN_MODEL": "gateway:claude-x", **environment}, ENDPOINTS)


@pytest.mark.parametrize("setting", ["local", "local:", "other:x"])
def test_the_endpoints_are_listed_if_none_is_named(setting: str) -> None:
    with pytest.raises(BadModelSetting, match=r"Endpoints in the configuration file: local, gateway\. Providers: anth"):
        choose_model({"EVERTURN_MODEL": setting}, ENDPOINTS)


def test_an_endpoint_without_a_configuration_file_is_explained() -> None:
    with pytest.raises(BadModelSetting, match=r"is named 'local'\..*: none \(EVERTURN_CONFIG is not set\)"):
        choose_model({"EVERTURN_MODEL": "local:my-model"})
