"""Settings of the local runner."""

from pathlib import Path

import pytest

from everturn_local.settings import REPOSITORY, load_environment, load_settings


def test_the_defaults_are_the_documented_ones(monkeypatch: pytest.MonkeyPatch):
    for name in ("EVERTURN_HOME", "PORT", "HOST"):
        monkeypatch.delenv(name, raising=False)

    settings = load_settings()

    assert (settings.everturn_home, settings.port, settings.host) == (REPOSITORY / ".everturn", 8080, "127.0.0.1")


def test_the_environment_chooses_home_and_port(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVERTURN_HOME", "/somewhere")
    monkeypatch.setenv("PORT", "8090")

    settings = load_settings()

    assert (settings.everturn_home, settings.port) == (Path("/somewhere"), 8090)


def test_services_inherit_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    assert load_environment()["OPENAI_API_KEY"] == "k"
