"""Settings of the local runner."""

from pathlib import Path

import pytest

from everturn.execution.profiles import load_profiles
from everturn_local.settings import (
    REPOSITORY,
    BadSettings,
    load_compose_environment,
    load_compose_settings,
    load_environment,
    load_run_environment,
    load_settings,
)


def test_the_defaults_are_the_documented_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("EVERTURN_HOME", "PORT", "HOST"):
        monkeypatch.delenv(name, raising=False)

    settings = load_settings(tmp_path / "absent")

    assert (settings.everturn_home, settings.port, settings.host) == (REPOSITORY / ".everturn", 8080, "127.0.0.1")


def test_container_secrets_are_in_the_checkout_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("COMPOSE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert load_compose_settings(tmp_path / "absent").home == REPOSITORY / "deploy"


def test_the_environment_chooses_home_and_port(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVERTURN_HOME", "/somewhere")
    monkeypatch.setenv("PORT", "8090")

    settings = load_settings()

    assert (settings.everturn_home, settings.port) == (Path("/somewhere"), 8090)


@pytest.mark.parametrize("port", ["abc", "99999", "-1", ""])
def test_a_setting_that_can_not_be_used_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch, port: str):
    monkeypatch.setenv("PORT", port)

    with pytest.raises(BadSettings, match=r" port: (Input should|It must) be ") as refused:
        load_settings()

    assert not port or port not in str(refused.value).split()


def test_an_unknown_mode_is_reported_before_anything_starts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVERTURN_MODE", "prod")

    with pytest.raises(BadSettings, match=r"EVERTURN_MODE: .*'development' or 'production'"):
        load_settings()


def test_a_file_provides_values_missing_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    file = tmp_path / ".env"
    file.write_text("PORT=8091\nOPENAI_API_KEY=from-file\nEVERTURN_MODEL=offline\nEMPTY\n")
    monkeypatch.delenv("PORT", raising=False)
    monkeypatch.delenv("EVERTURN_MODEL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")

    env = load_run_environment(file)

    assert load_settings(file).port == 8091
    assert (env["OPENAI_API_KEY"], env["EVERTURN_MODEL"]) == ("from-environment", "offline")


def test_an_installation_has_variables_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / ".env").write_text("WORKERS=7\nREDIS_IMAGE='registry.example/redis'\n")
    monkeypatch.setenv("COMPOSE_HOME", str(tmp_path))
    monkeypatch.delenv("WORKERS", raising=False)
    monkeypatch.delenv("REDIS_IMAGE", raising=False)

    assert load_compose_settings().workers == 7
    assert load_compose_environment()["REDIS_IMAGE"] == "registry.example/redis"


def test_one_sandbox_waits_unless_somebody_says_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    file = tmp_path / ".env"
    monkeypatch.delenv("EXECUTION_PROFILES", raising=False)

    default = load_profiles(load_run_environment(file)["EXECUTION_PROFILES"])["default"]
    file.write_text("EXECUTION_PROFILES=\n")
    chosen = load_profiles(load_run_environment(file)["EXECUTION_PROFILES"])["default"]

    assert (default.warm, "pandas" in default.preload, chosen.warm) == (1, True, 0)


def test_services_inherit_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    assert load_environment()["OPENAI_API_KEY"] == "k"
