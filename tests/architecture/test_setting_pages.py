"""`.env.example` and `docs/configuration.md` list every setting of every process, made from their own descriptions."""

import os
from pathlib import Path

import pytest
from documents.setting_page import (
    LIBRARY_VARIABLES,
    SettingGroup,
    list_settings,
    render_env_example,
    render_setting_page,
)
from pydantic_settings import BaseSettings, EnvSettingsSource

from chat_proc.settings import WorkerSettings
from everturn.core.logging import find_named_secrets
from everturn.core.settings import CommonSettings, Unlisted
from everturn_local.settings import ComposeSettings, LocalSettings
from exec_supervisor.broker.settings import BrokerSettings
from ingress.settings import IngressSettings, MigrationSettings

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / ".env.example"
PAGE = REPOSITORY / "docs" / "configuration.md"
GROUPS = (
    SettingGroup("ingress and worker", CommonSettings),
    SettingGroup("ingress", IngressSettings, reader="ingress"),
    SettingGroup("operator commands; the serving process needs none of these", MigrationSettings, reader="commands"),
    SettingGroup("worker", WorkerSettings, reader="worker"),
    SettingGroup("broker", BrokerSettings, reader="broker"),
    SettingGroup("`make run`", LocalSettings, reader="make run"),
    SettingGroup("`make up`", ComposeSettings, reader="make up"),
)
NO_SECRETS = {"AUTH_PUBLIC_KEY"}
"""Their names end as those of secrets do."""


def test_the_example_file_lists_every_setting() -> None:
    # Those of `make up` are in deploy/.env.example.
    text = render_env_example(GROUPS[:-1], REPOSITORY)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        EXAMPLE.write_text(text)

    assert EXAMPLE.read_text() == text, "rewrite it with UPDATE_GOLDEN=1 make test TESTS=tests/architecture"


def test_the_page_lists_every_setting() -> None:
    text = render_setting_page(GROUPS, REPOSITORY)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(text)

    assert PAGE.read_text() == text, "rewrite it with UPDATE_GOLDEN=1 make test TESTS=tests/architecture"


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.reader or "shared")
def test_a_variable_that_only_a_field_is_named_after_sets_nothing(
    group: SettingGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert issubclass(group.settings, BaseSettings)
    fields = group.settings.model_fields
    documented = {str(field.validation_alias or name).upper() for name, field in fields.items()}
    for variable in documented:
        monkeypatch.delenv(variable, raising=False)

    for name in fields:
        if name.upper() not in documented:
            monkeypatch.setenv(name.upper(), "1")

    assert EnvSettingsSource(group.settings)() == {}


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.reader or "shared")
def test_every_setting_says_what_it_means_and_whether_it_is_secret(group: SettingGroup) -> None:
    for line in list_settings(group, REPOSITORY):
        assert line.meaning, line.name
        secret_by_name = bool(find_named_secrets({line.name: "x"})) and line.name not in NO_SECRETS
        assert line.secrecy or not secret_by_name, f"{line.name}: mark it with Secrecy"


def test_the_page_leaves_out_what_a_parent_process_or_a_test_sets() -> None:
    fields = CommonSettings.model_fields.values()
    unlisted = {field.validation_alias: mark for field in fields for mark in field.metadata if type(mark) is Unlisted}

    assert unlisted == {"READY_FD": Unlisted.PARENT, "FAILPOINT": Unlisted.TESTS, "CLOCK_STEPS": Unlisted.TESTS}
    assert not any(f"{name}=" in EXAMPLE.read_text() or f"`{name}`" in PAGE.read_text() for name in unlisted)


def test_variables_of_libraries_are_secret_where_their_names_say_so() -> None:
    for variable in LIBRARY_VARIABLES:
        assert bool(variable.secrecy) is bool(find_named_secrets({variable.name: "x"})), variable.name
