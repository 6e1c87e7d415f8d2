"""Settings that would admit strangers or infected files are refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from everturn.core.errors import Invalid
from ingress.__main__ import main
from ingress.settings import IngressSettings, load_operator_url, read_origins

BASE = {"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x", "OBJECTS_URL": "file:///x"}
SIGNING = {"SIGNING_SECRET": "0123456789abcdef" * 4}
TOKENS = {"AUTH_ISSUER": "i", "AUTH_AUDIENCE": "a", "AUTH_JWKS_URL": "https://issuer/keys", **SIGNING}


def build(monkeypatch: pytest.MonkeyPatch, **env: str) -> IngressSettings:
    for name, value in (BASE | env).items():
        monkeypatch.setenv(name, value)
    settings: Any = IngressSettings
    return settings()


def test_development_needs_nothing_and_listens_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = build(monkeypatch, EVERTURN_MODE="development")

    assert settings.development
    assert settings.host == "127.0.0.1"
    assert not settings.has_keys


def test_production_is_the_default_and_needs_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = build(monkeypatch, **TOKENS)

    assert not settings.development


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"EVERTURN_MODE": "development", "HOST": "0.0.0.0"},
        {"EVERTURN_MODE": "other"},
        TOKENS | {"AUTH_ISSUER": ""},
        TOKENS | {"AUTH_AUDIENCE": ""},
        TOKENS | {"AUTH_JWKS_URL": "http://issuer/keys"},
        TOKENS | {"AUTH_JWKS_URL": "", "AUTH_SECRET": "secret"},
        TOKENS | {"APP_AV_SCAN": "0"},
        TOKENS | {"PORT": "70000"},
        TOKENS | {"ALLOWED_ORIGINS": "*"},
        TOKENS | {"ALLOWED_ORIGINS": "https://a.example/path"},
        TOKENS | {"GUEST_SCOPES": "default"},
        TOKENS | {"SIGNING_SECRET": "short"},
    ],
)
def test_unsafe_settings_are_refused(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        build(monkeypatch, **env)


@pytest.mark.parametrize(
    "keys",
    [
        {"AUTH_JWKS_URL": "https://issuer/keys", "AUTH_PUBLIC_KEY": "pem"},
        {"AUTH_PUBLIC_KEY": "pem", "AUTH_SECRET": "fedcba9876543210" * 4},
        {"AUTH_JWKS_URL": "https://issuer/keys", "AUTH_SECRET": "fedcba9876543210" * 4},
    ],
    ids=" and ".join,
)
@pytest.mark.parametrize("mode", ["development", "production"])
def test_of_two_kinds_of_keys_none_is_ignored_in_silence(
    monkeypatch: pytest.MonkeyPatch, keys: dict[str, str], mode: str
) -> None:
    with pytest.raises(ValidationError, match="Set only one of AUTH_JWKS_URL, AUTH_PUBLIC_KEY and AUTH_SECRET"):
        build(monkeypatch, **TOKENS | {"AUTH_JWKS_URL": "", "EVERTURN_MODE": mode} | keys)


def test_a_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "a secret that is long enough for HS256"

    settings = build(monkeypatch, **TOKENS | {"AUTH_JWKS_URL": "", "AUTH_SECRET": secret})

    assert secret not in repr(settings)


PLACEHOLDERS = ["secret" * 8, "changeme-changeme-changeme-changeme", "0" * 64, "your-256-bit-secret-goes-here-soon"]


@pytest.mark.parametrize("secret", PLACEHOLDERS)
@pytest.mark.parametrize("name", ["AUTH_SECRET", "SIGNING_SECRET"])
def test_a_default_secret_is_refused_outside_development(
    monkeypatch: pytest.MonkeyPatch, name: str, secret: str
) -> None:
    keys = TOKENS | {"AUTH_JWKS_URL": ""} | ({"AUTH_SECRET": "fedcba9876543210" * 4})

    with pytest.raises(ValidationError, match=f"{name} is a placeholder"):
        build(monkeypatch, **keys | {name: secret})
    assert build(monkeypatch, EVERTURN_MODE="development", **keys | {name: secret})


def test_outside_development_there_is_a_secret_for_seals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIGNING_SECRET", raising=False)
    with pytest.raises(ValidationError, match="SIGNING_SECRET"):
        build(monkeypatch, **{name: value for name, value in TOKENS.items() if name != "SIGNING_SECRET"})


def test_guests_come_in_nowhere_unless_the_settings_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build(monkeypatch, **TOKENS).guest_scopes == frozenset()

    opened = build(monkeypatch, **TOKENS, GUEST_SCOPES="acme/one,acme/two")

    assert opened.guest_scopes == {("acme", "one"), ("acme", "two")}


def test_the_operators_address_is_read_by_commands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_OWNER_URL", "postgresql://owner")
    assert load_operator_url() == "postgresql://owner"
    assert "owner" not in repr(build(monkeypatch, **TOKENS))
    monkeypatch.delenv("DATABASE_OWNER_URL")
    with pytest.raises(Invalid):
        load_operator_url()


def test_origins_are_read_as_browsers_write_them() -> None:
    text = " https://Chat.Example:443, http://localhost:3000 ,,http://[::1]:80"

    assert read_origins(text) == {"https://chat.example", "http://localhost:3000", "http://[::1]"}
    assert read_origins("") == frozenset()


@pytest.mark.parametrize(
    "text",
    ["*", "https://*.example", "chat.example", "https://chat.example/", "https://a@b", "null", "ftp://a", "https://é",
     "https://a?b", "https://a#b", "https://", "https://a:x"],
)  # fmt: skip
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_origins(text)


def test_a_process_that_may_not_start_says_why_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (BASE | TOKENS | {"FAILPOINT": "turn.in_tool:1:kill"}).items():
        monkeypatch.setenv(name, value)

    assert main([]) == 2

    assert capsys.readouterr().err == "ingress: FAILPOINT is for tests and needs EVERTURN_MODE=development; unset it.\n"
