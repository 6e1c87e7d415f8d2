"""What every service reads from its environment."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from everturn.core.settings import (
    MAX_CONFIG_BYTES,
    MAX_SECRET_BYTES,
    MAX_SECRETS,
    BadConfig,
    BadSecrets,
    CommonSettings,
    explain_errors,
    load_secrets,
    load_toml,
)

REQUIRED = {"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x", "OBJECTS_URL": "file:///x"}


def load(monkeypatch: pytest.MonkeyPatch, **changes: str) -> CommonSettings:
    for name, value in (REQUIRED | changes).items():
        monkeypatch.setenv(name, value)
    return CommonSettings()  # type: ignore[call-arg] the fields come from the environment


def test_a_service_runs_in_production_mode_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch)

    assert (settings.mode, settings.log_format, settings.failpoint) == ("production", "json", "")


def test_unrelated_mode_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, MODE="development")

    assert settings.mode == "production"


@pytest.mark.parametrize("changes", [{"EVERTURN_MODE": "staging"}, {"LOG_LEVEL": "loud"}, {"READY_FD": "-1"}])
def test_an_unknown_value_is_refused(changes: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError):
        load(monkeypatch, **changes)


@pytest.mark.parametrize(
    ("name", "urls", "form"),
    [
        ("REDIS_URL", ["http://x", "foo", "", "redis://h:a", "redis://h:99999", "redis://[x"], "redis://:"),
        ("DATABASE_URL", ["http://x", "foo", "", "postgresql://h:a/x", "postgresql://[x/y"], "postgresql://role:"),
    ],
)
def test_an_invalid_address_is_reported_in_one_sentence(
    name: str, urls: list[str], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in urls:
        with pytest.raises(ValidationError) as refused:
            load(monkeypatch, **{name: url})

        (line,) = explain_errors(refused.value)
        assert line.startswith(f"{name}: Write it as {form}")


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("REDIS_URL", "rediss://:p@[::1]:6380/1"),
        ("REDIS_URL", "unix:///run/redis.sock"),
        ("DATABASE_URL", "postgres://u:p%40@h1:1,h2:2/name"),
        ("DATABASE_URL", "postgresql:///name?host=/run/postgresql"),
    ],
)
def test_every_form_of_an_address_is_taken(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, **{name: url})

    assert url in (settings.redis_url, settings.database_url)


def test_a_setting_without_default_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in REQUIRED:
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ValidationError) as refused:
        CommonSettings()  # type: ignore[call-arg] that is the point

    missing: list[Any] = [error["loc"][0] for error in refused.value.errors()]
    assert set(missing) == set(REQUIRED)


@pytest.mark.parametrize("fault", [{"FAILPOINT": "turn.in_tool:1:kill"}, {"CLOCK_STEPS": "3600@1"}])
def test_a_fault_of_tests_is_refused_outside_development(
    fault: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValidationError) as refused:
        load(monkeypatch, **fault)

    (name,) = fault
    assert explain_errors(refused.value) == [f"{name} is for tests and needs EVERTURN_MODE=development; unset it."]
    load(monkeypatch, EVERTURN_MODE="development", **fault)


def test_wrong_settings_are_reported_by_name_without_value(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError) as refused:
        load(monkeypatch, READY_FD="a secret", LOG_LEVEL="another secret")

    lines = explain_errors(refused.value)
    assert [line.partition(":")[0] for line in lines] == ["READY_FD", "LOG_LEVEL"]
    assert "secret" not in str(lines)


def save_files(folder: Path, **files: str) -> dict[str, str]:
    """An environment that names the folder with these files."""
    for name, text in files.items():
        (folder / name).write_text(text)
    return {"SECRETS_DIR": str(folder)}


def test_each_file_of_the_secrets_is_the_setting_that_it_is_named_after(tmp_path: Path) -> None:
    environment = save_files(tmp_path, DATABASE_URL="postgresql://x\n", AUTH_SECRET="two words \n", EMPTY="\n")
    (tmp_path / "..data").mkdir()
    (tmp_path / "README").mkdir()
    (tmp_path / "lower-case").write_text("no setting")

    load_secrets(environment)

    assert environment == {"SECRETS_DIR": str(tmp_path), "DATABASE_URL": "postgresql://x", "AUTH_SECRET": "two words "}


def test_the_environment_takes_precedence_over_a_file(tmp_path: Path) -> None:
    environment = save_files(tmp_path, REDIS_URL="redis://file") | {"REDIS_URL": "redis://environment"}

    load_secrets(environment)

    assert environment["REDIS_URL"] == "redis://environment"


def test_without_a_folder_nothing_changes() -> None:
    for environment in ({}, {"SECRETS_DIR": ""}):
        before = dict(environment)
        load_secrets(environment)
        assert environment == before


def test_unusable_secrets_are_reported_without_their_text(tmp_path: Path) -> None:
    for data in (b"\xffhidden", b"hidden\0", b"hidden" * MAX_SECRET_BYTES):
        (tmp_path / "AUTH_SECRET").write_bytes(data)
        with pytest.raises(BadSecrets, match="AUTH_SECRET") as raised:
            load_secrets({"SECRETS_DIR": str(tmp_path)})
        assert "hidden" not in str(raised.value)
    with pytest.raises(BadSecrets, match="absent"):
        load_secrets({"SECRETS_DIR": str(tmp_path / "absent")})


def test_a_folder_of_too_many_files_is_not_read(tmp_path: Path) -> None:
    environment = save_files(tmp_path, **{f"SECRET_{number}": "x" for number in range(MAX_SECRETS + 1)})

    with pytest.raises(BadSecrets, match=str(MAX_SECRETS)):
        load_secrets(environment)


def test_a_configuration_file_is_never_read_in_part(tmp_path: Path) -> None:
    path = tmp_path / "everturn.toml"
    text = "rounds = 20\n".ljust(MAX_CONFIG_BYTES, "#")
    path.write_text(text)

    assert load_toml(path) == {"rounds": 20}
    path.write_text(text + "\n[bundles.late]\n")
    with pytest.raises(BadConfig, match=f"everturn.toml is longer than {MAX_CONFIG_BYTES} bytes"):
        load_toml(path)
