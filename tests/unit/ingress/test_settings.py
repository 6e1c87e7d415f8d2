"""Settings that would let strangers in or infected files through are refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from ingress.settings import IngressSettings

BASE = {"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x", "OBJECTS_URL": "file:///x"}
TOKENS = {"AUTH_ISSUER": "i", "AUTH_AUDIENCE": "a", "AUTH_JWKS_URL": "https://issuer/keys"}


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
    assert settings.algorithms == ("RS256", "ES256", "EdDSA")


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
    ],
)
def test_unsafe_settings_are_refused(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        build(monkeypatch, **env)


def test_a_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "a secret that is long enough for HS256"

    settings = build(monkeypatch, **TOKENS | {"AUTH_JWKS_URL": "", "AUTH_SECRET": secret})

    assert secret not in repr(settings)
