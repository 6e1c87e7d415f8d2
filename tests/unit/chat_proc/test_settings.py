from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from chat_proc.settings import OperatorConfig, ReactConfig, WorkerSettings, load_config
from everturn.core.settings import BadConfig

NEEDED = {"DATABASE_URL": "postgresql://w@h/d", "REDIS_URL": "redis://h:1/0", "OBJECTS_URL": "file:///objects"}


def load(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> WorkerSettings:
    for name, value in {**NEEDED, **environment}.items():
        monkeypatch.setenv(name, value)
    return WorkerSettings()  # type: ignore[call-arg]


def test_the_environment_sets_what_differs_from_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, {"WORKER_SLOTS": "9", "AI_REACT_MAX_ITERATIONS": "3"})

    assert (settings.worker_slots, settings.max_iterations) == (9, 3)
    assert settings.database_url == NEEDED["DATABASE_URL"]


def test_the_defaults_are_those_of_the_design(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, {})

    assert settings.drain_timeout_s == 30
    assert (settings.codec, settings.max_iterations, settings.turn_wall_time_s) == ("channels", None, 1800.0)
    assert settings.sandbox_python is None
    assert (settings.agent_version, settings.multi_action) == ("v3", "off")
    assert (settings.fallback_model, settings.config) == ("", None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKER_SLOTS", "0"),
        ("DRAIN_TIMEOUT_S", "5"),
        ("TURN_COST_USD", "-1"),
        ("CONTEXT_MAX_TOKENS", "23999"),
        ("AI_REACT_AGENT_VERSION", "v1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(ValidationError):
        load(monkeypatch, {name: value})


def test_the_choice_of_the_model_sees_the_keys_of_the_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, {"EVERTURN_MODEL": "offline", "EVERTURN_MODE": "development", "SOME_KEY": "x"})

    environment = settings.model_environment

    assert environment["EVERTURN_MODEL"] == "offline"
    assert environment["EVERTURN_MODE"] == "development"
    assert environment["SOME_KEY"] == "x"


def test_fan_out_is_refused_in_the_version_that_has_one_action_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    load(monkeypatch, {"AI_REACT_AGENT_MULTI_ACTION": "safe_fanout"})

    with pytest.raises(ValidationError, match="AI_REACT_AGENT_VERSION=v2 accepts one action per round"):
        load(monkeypatch, {"AI_REACT_AGENT_MULTI_ACTION": "safe_fanout", "AI_REACT_AGENT_VERSION": "v2"})


WHOLE_FILE = """
[models.roles]
title = "offline"

[ai.react]
max_iterations = 20
codec = "native"

[bundles.first.config.react]
max_iterations = 5
[bundles.first.react]
max_iterations = 6
codec = "json"

[bundles."demo.second".react]
max_iterations = 7

[bundles.third]
"""


URL = "base_url = 'http://127.0.0.1:8000/v1'"


def write_config(folder: Path, text: str) -> OperatorConfig:
    path = folder / "everturn.toml"
    path.write_text(text)
    return load_config(path)


def test_what_differs_for_a_bundle_is_read_key_by_key(
    tmp_path: Path,
) -> None:
    config = write_config(tmp_path, WHOLE_FILE)

    assert config.find_react("first") == ReactConfig(max_iterations=5, codec="json")
    assert config.find_react("demo.second") == ReactConfig(max_iterations=7, codec="native")
    assert config.find_react("third") == config.find_react(None) == ReactConfig(max_iterations=20, codec="native")
    assert OperatorConfig().find_react("first") == ReactConfig()
    assert config.models.roles == {"title": "offline"}


def test_without_a_configuration_file_nothing_is_configured() -> None:
    assert load_config(None) == OperatorConfig()


def test_the_file_decides_about_the_default_bundle_before_the_runner(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[ai]\ninstructions = "Be brief."')
    (tmp_path / "other.toml").write_text('[ai]\ndefault_bundle = "desk"')

    own, other = (load_config(tmp_path / name, default_bundle="shed").ai for name in ("own.toml", "other.toml"))

    assert (own.default_bundle, own.instructions, other.default_bundle) == ("shed", "Be brief.", "desk")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[ai.react]\nmax_iterations = 0", "ai.react.max_iterations: Input should be greater than or equal to 1"),
        ("[ai.react]\ncodec = 'xml'", "ai.react.codec: Input should be 'channels', 'native', 'json' or 'auto'"),
        ("[ai.react]\nmax_iteration = 3", "ai.react.max_iteration: Unknown key"),
        ("[bundles.b.config.react]\nmax_iterations = 'x'", "config.react.max_iterations: It must be a whole number"),
        ("[models.roles]\ntitle = 1", "models.roles.title: Input should be a valid string"),
        ("[models.roles", "end of a table declaration"),
        (f"[models.endpoints.local]\n{URL}", "models.endpoints.local.protocol: It is missing"),
        (
            f"[models.endpoints.local]\nprotocol = 'soap'\n{URL}",
            "protocol: Input should be 'openai', 'openai-responses' or 'anthropic'",
        ),
        ("[models.endpoints.local]\nprotocol = 'openai'", "models.endpoints.local.base_url: It is missing"),
        ("[models.endpoints.local]\nprotocol = 'openai'\nbase_url = 'host:80'", "Write it as https://host:port/path"),
        (
            f"[models.endpoints.local]\nprotocol = 'openai'\n{URL}\nkey_env = 'MINE'",
            "models.endpoints.local.key_env: Name a variable in capital letters that ends in KEY",
        ),
        (
            f"[models.endpoints.local]\nprotocol = 'openai'\n{URL}\nfirst_token_timeout_s = 901",
            "models.endpoints.local.first_token_timeout_s: Input should be less than or equal to 900",
        ),
        (f"[models.endpoints.openai]\nprotocol = 'openai'\n{URL}", "An endpoint can't be named openai"),
        (f"[models.endpoints.'a:b']\nprotocol = 'openai'\n{URL}", "Name an endpoint with 1 to 40 characters of a-z"),
        ("[models.cards.m]\ncontext_token = 1", "models.cards.m.context_token: Unknown key"),
        (
            "[models.cards.m]\nabilities = ['parallel_tool_calls']",
            "models.cards.m.abilities 1: Input should be 'tool_call', 'json_mode', 'json_schema' or 'reasoning'",
        ),
        ("[models.cards.m]\nprice = 'free'", "models.cards.m.price: Write prices such as { input = 1.0"),
        ("[models.cards.m]\nprice = 3", "models.cards.m.price: Write prices such as { input = 1.0"),
        ("[models.cards.m.price]\ninput = 1", "models.cards.m.price.output: It is missing"),
        ("[models.cards.m.price]\ninput = -1\noutput = 1", "price.input: Input should be greater than or equal to 0"),
        ("[models.cards.m.price]\ninput = 1\noutput = 1\nlong_above = 9", "Set both `long` and `long_above`"),
        ("[models.cards.m]\nabilities = 'tool_call'", "models.cards.m.abilities: It must be a list such as"),
        (
            "[models.cards.qwen2.5]\nimages = true",
            "models.cards.qwen2: Unknown table 5. Write a name that contains a dot",
        ),
        ("[models.roles]\ndecisions = 'offline'", "models.roles.decisions: Input should be 'decision'"),
        ("[models]\nunpriced = 'never'", 'models.unpriced: Write "refuse", "allow" or prices'),
        ("[models.unpriced]\ninput = 1", "models.unpriced.output: It is missing"),
        ("\udcff", "codec can't"),
    ],
)
def test_a_wrong_configuration_file_is_refused_with_the_key_that_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "everturn.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(BadConfig) as raised:
        load_config(path)

    assert says in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_configuration_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="No such file"):
        load_config(tmp_path / "none.toml")


def test_the_file_names_functions_that_are_tools(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '[[tools]]\nalias = "city"\nmodule = "city"\n[tools.tools.find]\neffect = "pure"\n', encoding="utf-8"
    )

    (entry,) = load_config(path).tools

    assert (entry.alias, entry.module, entry.tools["find"].effect) == ("city", "city", "pure")


def test_secrets_are_those_of_settings_addresses_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, {"BRAVE_API_KEY": "brave-key", "OPENAI_API_KEY": "openai-key"})

    assert {"brave-key", "openai-key"} <= set(settings.secrets)


@pytest.mark.parametrize(
    ("given", "policy"),
    [("seen", "seen"), ("open", "open"), ("ask", "ask"), ("off", "ask")],
)
def test_the_address_rules_follow_the_switch(monkeypatch: pytest.MonkeyPatch, given: str, policy: str) -> None:
    assert load(monkeypatch, {"WEB_FETCH": given}).address_rules.policy == policy


def test_hosts_are_listed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, denied = "Docs.Example.com, *.b\u00fccher.example", "evil.test."
    hosts = {"WEB_FETCH_ALLOWED_HOSTS": allowed, "WEB_FETCH_DENIED_HOSTS": denied}
    rules = load(monkeypatch, hosts).address_rules

    assert [rules.is_allowed(host) for host in ("docs.example.com", "example.com", "a.xn--bcher-kva.example")] == [
        True, False, True,
    ]  # fmt: skip
    assert rules.is_denied("evil.test") and not rules.is_denied("not-evil.test")


@pytest.mark.parametrize("hosts", ["https://a.example", "a.example/x", "*", "a b.example", "x" * 300])
def test_an_invalid_host_name_is_refused(monkeypatch: pytest.MonkeyPatch, hosts: str) -> None:
    with pytest.raises(ValidationError, match="WEB_FETCH_DENIED_HOSTS"):
        load(monkeypatch, {"WEB_FETCH_DENIED_HOSTS": hosts})
