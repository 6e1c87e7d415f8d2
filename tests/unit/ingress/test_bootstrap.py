"""Bootstrap chooses drivers, keys and antivirus by the settings."""

from typing import Any

import pytest
from starlette.datastructures import Headers

from everturn.core.errors import Invalid
from everturn_testing.accounts.credentials import MemoryCredentials
from everturn_testing.core import FixedClock
from ingress.attachments.antivirus import Clamd, NoScan, RefuseAll
from ingress.bootstrap import build_antivirus, build_gate, build_verifier, open_operator
from ingress.bounds import BOUNDS
from ingress.settings import IngressSettings

SECRET = "a secret that is long enough for HS256"
TOKENS = {"AUTH_ISSUER": "i", "AUTH_AUDIENCE": "a", "AUTH_SECRET": SECRET, "SIGNING_SECRET": "0123456789abcdef" * 4}


def settings(**fields: Any) -> IngressSettings:
    base = {"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x", "OBJECTS_URL": "file:///x"}
    return IngressSettings.model_validate(base | fields)


def test_the_antivirus_follows_mode_and_settings() -> None:
    assert isinstance(build_antivirus(settings(EVERTURN_MODE="development")), NoScan)
    assert isinstance(build_antivirus(settings(**TOKENS)), RefuseAll)
    assert isinstance(build_antivirus(settings(CLAMD_URL="tcp://127.0.0.1:3310", **TOKENS)), Clamd)


def test_tokens_are_verified_when_there_is_a_key() -> None:
    assert build_verifier(settings(EVERTURN_MODE="development")) is None
    assert build_verifier(settings(**TOKENS))
    assert build_verifier(settings(**TOKENS | {"AUTH_SECRET": None, "AUTH_JWKS_URL": "https://issuer/keys"}))


PUBLIC = TOKENS | {"AUTH_SECRET": None, "AUTH_JWKS_URL": "https://issuer/keys"}
DEVELOPMENT = {"EVERTURN_MODE": "development"}


@pytest.mark.parametrize(
    ("keys", "algorithms"),
    [
        *[
            (keys, names)
            for keys in (TOKENS, PUBLIC, DEVELOPMENT)
            for names in ("none", "RS257", "", ",", "HS256,none")
        ],
        (TOKENS, "RS256"),
        (TOKENS, "HS256,RS256"),
        (PUBLIC, "HS256"),
        (DEVELOPMENT, "HS256"),
        (DEVELOPMENT, "RS256"),
    ],
)
def test_algorithms_that_no_key_can_verify_are_refused(keys: dict[str, Any], algorithms: str) -> None:
    with pytest.raises(Invalid, match="AUTH_ALGORITHMS"):
        build_verifier(settings(**keys, AUTH_ALGORITHMS=algorithms))


@pytest.mark.parametrize(("keys", "algorithms"), [(TOKENS, "HS256, HS512"), (PUBLIC, "RS256,PS512,ES384,ES256K,EdDSA")])
def test_algorithms_of_the_keys_are_taken(keys: dict[str, Any], algorithms: str) -> None:
    assert build_verifier(settings(**keys, AUTH_ALGORITHMS=algorithms))


@pytest.mark.parametrize("changes", [{"EVERTURN_MODE": "development"}, TOKENS | {"ANONYMOUS": "1"}])
def test_a_gate_is_built_with_what_the_settings_allow(changes: dict[str, Any]) -> None:
    clock = FixedClock()

    gate = build_gate(
        settings(**changes, ALLOWED_ORIGINS="https://chat.example"), BOUNDS, MemoryCredentials(clock), clock
    )

    assert gate.origins.try_allowed(Headers({"origin": "https://chat.example"}))
    if changes.get("ANONYMOUS"):
        assert gate.admit_guest(Headers(), tenant="default", project="default").user_id


async def test_an_operators_command_needs_the_address_of_the_migrating_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_OWNER_URL", raising=False)
    with pytest.raises(Invalid, match="DATABASE_OWNER_URL"):
        async with open_operator():
            pass
    monkeypatch.setenv("DATABASE_OWNER_URL", "postgresql://x")
    async with open_operator() as admin:
        assert admin
