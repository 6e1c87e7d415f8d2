"""Bootstrap chooses drivers, keys and antivirus by the settings."""

from typing import Any

import pytest

from ingress.attachments.antivirus import Clamd, NoScan, RefuseAll
from ingress.bootstrap import DRIVERS, build_antivirus, build_verifier, load_driver
from ingress.settings import IngressSettings

SECRET = "a secret that is long enough for HS256"
TOKENS = {"AUTH_ISSUER": "i", "AUTH_AUDIENCE": "a", "AUTH_SECRET": SECRET}


def settings(**fields: Any) -> IngressSettings:
    base = {"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x", "OBJECTS_URL": "file:///x"}
    return IngressSettings.model_validate(base | fields)


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_every_driver_can_be_loaded_by_its_name(name: str) -> None:
    assert callable(load_driver(name))


def test_the_antivirus_follows_mode_and_settings() -> None:
    assert isinstance(build_antivirus(settings(EVERTURN_MODE="development")), NoScan)
    assert isinstance(build_antivirus(settings(**TOKENS)), RefuseAll)
    assert isinstance(build_antivirus(settings(CLAMD_URL="tcp://127.0.0.1:3310", **TOKENS)), Clamd)


def test_tokens_are_verified_when_there_is_a_key() -> None:
    assert build_verifier(settings(EVERTURN_MODE="development")) is None
    assert build_verifier(settings(**TOKENS))
    assert build_verifier(settings(**TOKENS | {"AUTH_SECRET": None, "AUTH_JWKS_URL": "https://issuer/keys"}))
