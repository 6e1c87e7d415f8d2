from collections.abc import Mapping

import pytest
from pydantic import ValidationError

from chat_proc.settings import WorkerSettings

NEEDED = {"DATABASE_URL": "postgresql://w@h/d", "REDIS_URL": "redis://h:1/0", "OBJECTS_URL": "file:///objects"}


def load(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> WorkerSettings:
    for name, value in {**NEEDED, **environment}.items():
        monkeypatch.setenv(name, value)
    return WorkerSettings()  # type: ignore[call-arg]


def test_the_environment_sets_what_differs_from_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, {"WORKER_SLOTS": "9", "AI_REACT_MAX_ITERATIONS": "3", "LEASE_S": "5"})

    assert (settings.worker_slots, settings.max_iterations, settings.lease_s) == (9, 3, 5.0)
    assert settings.database_url == NEEDED["DATABASE_URL"]


def test_the_defaults_are_those_of_the_design(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, {})

    assert (settings.lease_s, settings.drain_timeout_s) == (15.0, 30.0)
    assert (settings.max_iterations, settings.turn_wall_time_s) == (15, 1800.0)
    assert settings.sandbox_python is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("WORKER_SLOTS", "0"), ("LEASE_S", "0.5"), ("DRAIN_TIMEOUT_S", "5"), ("TURN_COST_USD", "-1")],
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
