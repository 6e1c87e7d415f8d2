"""Bootstrap chooses drivers, keys and antivirus by the settings."""

import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from starlette.datastructures import Headers

from everturn.core.errors import Invalid
from everturn_testing.accounts.credentials import MemoryCredentials
from everturn_testing.core import FixedClock
from ingress.attachments.antivirus import Clamd, NoScan, RefuseAll
from ingress.bootstrap import (
    build_gate,
    build_signer,
    build_verifier,
    choose_encoder,
    open_chosen_antivirus,
    open_operator,
)
from ingress.bounds import BOUNDS
from ingress.errors import ProblemError
from ingress.settings import IngressSettings, load_config

SECRET = "a secret that is long enough for HS256"
TOKENS = {"AUTH_ISSUER": "i", "AUTH_AUDIENCE": "a", "AUTH_SECRET": SECRET, "SIGNING_SECRET": "0123456789abcdef" * 4}


def settings(**fields: Any) -> IngressSettings:
    base = {"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x", "OBJECTS_URL": "file:///x"}
    return IngressSettings.model_validate(base | fields)


def test_the_antivirus_follows_mode_and_settings() -> None:
    expected = (
        (settings(EVERTURN_MODE="development"), NoScan),
        (settings(**TOKENS), RefuseAll),
        (settings(CLAMD_URL="tcp://127.0.0.1:3310", **TOKENS), Clamd),
    )
    for given, kind in expected:
        with open_chosen_antivirus(given) as antivirus:
            assert isinstance(antivirus, kind)


def test_searches_use_the_encoder_that_the_file_gives_to_workers(tmp_path: Path) -> None:
    file = tmp_path / "everturn.toml"
    file.write_text('[models.roles]\ndecision = "offline"\nembedding = "hashed"\n')
    own = settings(EVERTURN_MODE="development", EMBEDDER="minilm")

    assert choose_encoder(own, load_config(file)).kind == "hashed"
    assert choose_encoder(own, load_config(None)).kind == "minilm"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('embedding = "word2vec"', "models.roles.embedding is 'word2vec'; expected 'auto'"),
        ("embedding = 3", "models.roles.embedding: Input should be a valid string"),
    ],
)
def test_a_wrong_encoder_in_the_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "everturn.toml"
    file.write_text(f"[models.roles]\n{text}\n")

    with pytest.raises(Invalid, match=message):
        choose_encoder(settings(EVERTURN_MODE="development"), load_config(file))


def test_tokens_are_verified_when_there_is_a_key() -> None:
    assert build_verifier(settings(EVERTURN_MODE="development")) is None
    assert build_verifier(settings(**TOKENS))
    assert build_verifier(settings(**TOKENS | {"AUTH_SECRET": None, "AUTH_JWKS_URL": "https://issuer/keys"}))


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
async def test_a_shared_secret_verifies_each_of_its_algorithms(algorithm: str) -> None:
    secret = "a secret that is long enough for each of the algorithms: 64 bytes"
    verifier = build_verifier(settings(**TOKENS | {"AUTH_SECRET": secret}))
    claims = {"sub": "ann", "iss": "i", "aud": "a", "exp": time.time() + 60, "tenant": "t", "project": "p"}

    assert verifier is not None
    assert (await verifier.verify(jwt.encode(claims, secret, algorithm))).user_id == "ann"


async def test_a_token_signed_with_a_secret_is_rejected_by_public_keys() -> None:
    verifier = build_verifier(settings(**TOKENS | {"AUTH_SECRET": None, "AUTH_JWKS_URL": "https://issuer/keys"}))

    assert verifier is not None
    with pytest.raises(ProblemError) as refused:
        await verifier.verify(jwt.encode({"sub": "ann"}, SECRET, "HS256"))
    assert "algorithm" in refused.value.detail


@pytest.mark.parametrize("changes", [{"EVERTURN_MODE": "development"}, TOKENS | {"GUEST_SCOPES": "default/default"}])
def test_a_gate_is_built_with_what_the_settings_allow(changes: dict[str, Any]) -> None:
    clock = FixedClock()

    chosen = settings(**changes, ALLOWED_ORIGINS="https://chat.example")
    gate = build_gate(chosen, BOUNDS, MemoryCredentials(clock), clock, build_signer(chosen))

    assert gate.origins.try_allowed(Headers({"origin": "https://chat.example"}))
    if changes.get("GUEST_SCOPES"):
        assert gate.admit_guest(Headers(), tenant="default", project="default").user_id


async def test_an_operators_command_needs_the_address_of_the_migrating_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_OWNER_URL", raising=False)
    with pytest.raises(Invalid, match="DATABASE_OWNER_URL"):
        async with open_operator():
            pass
    monkeypatch.setenv("DATABASE_OWNER_URL", "postgresql://x")
    async with open_operator() as admin:
        assert admin
