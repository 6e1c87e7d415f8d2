"""The example file and the page are made from what the settings say of themselves."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from documents.setting_page import SettingGroup, list_settings, render_env_example, render_setting_page
from pydantic import Field, SecretStr

from everturn.core.settings import CommonSettings, Secrecy

CHECKOUT = Path("/checkout")


class OwnSettings(CommonSettings):
    slots: int = Field(default=4, ge=1, le=256, validation_alias="WORKER_SLOTS", description="Turns at once.")
    wait_s: float = Field(default=15.0, gt=0, le=300, validation_alias="WAIT_S", description="A wait.")
    body_bytes: int = Field(default=1024, ge=1, validation_alias="BODY_MAX_BYTES_PER_USER", description="A cap.")
    level: Literal["info", "debug"] = Field(default="debug", validation_alias="LOG_LEVEL", description="How loud.")
    open: bool = Field(default=False, validation_alias="OPEN", description="off|on.")
    limits: str = Field(default="", max_length=500, validation_alias="LIMITS", description="Of roles.")
    key: SecretStr | None = Field(default=None, validation_alias="SIGNING_KEY", description="A key.")
    key_file: Annotated[Path | None, Secrecy.FILE] = Field(default=None, description="Its file.")
    home: Path = Field(default=CHECKOUT / ".home", description="All state.")


GROUPS = (SettingGroup("all services", CommonSettings), SettingGroup("worker", OwnSettings, reader="worker"))
LINES = {line.name: line for line in list_settings(GROUPS[1], CHECKOUT)}


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("WORKER_SLOTS", "whole number, 1 to 256", "4"),
        ("WAIT_S", "number, seconds, above 0, at most 300", "15"),
        ("BODY_MAX_BYTES_PER_USER", "whole number, bytes, at least 1", "1024"),
        ("LOG_LEVEL", "`info` or `debug`", "debug"),
        ("OPEN", "`1` or `0`", "0"),
        ("LIMITS", "text of at most 500 characters", ""),
        ("SIGNING_KEY", "text", ""),
        ("HOME", "path", ".home"),
        ("DATABASE_URL", "text", None),
    ],
)
def test_written_limits_and_defaults(name: str, value: str, default: str | None) -> None:
    assert (LINES[name].value, LINES[name].default) == (value, default)


def test_secrets_are_known_by_type_or_mark() -> None:
    secret = {name: line.secrecy for name, line in LINES.items() if line.secrecy}

    assert secret == {
        "DATABASE_URL": Secrecy.PASSWORD,
        "REDIS_URL": Secrecy.PASSWORD,
        "SIGNING_KEY": Secrecy.VALUE,
        "KEY_FILE": Secrecy.FILE,
    }


def test_the_example_names_every_setting_once_with_its_description() -> None:
    lines = render_env_example(GROUPS, CHECKOUT).splitlines()

    assert lines.count("DATABASE_URL=") == 1
    assert lines[lines.index("# WORKER_SLOTS=4") - 1] == "# Turns at once."
    assert lines.index("# --- worker ---") > lines.index("# LOG_LEVEL=info")
    assert "# OPENAI_API_KEY=" in lines


def test_a_setting_row_names_its_readers() -> None:
    lines = render_setting_page(GROUPS, CHECKOUT).splitlines()

    assert "| `WORKER_SLOTS` | whole number, 1 to 256 | `4` | worker |  | Turns at once. |" in lines
    assert r"| `OPEN` | `1` or `0` | `0` | worker |  | off\|on. |" in lines
    (needed,) = (line for line in lines if line.startswith("| `DATABASE_URL`"))
    assert "| must be set | worker | the password in it |" in needed


def test_a_setting_is_listed_twice_if_its_defaults_differ() -> None:
    lines = render_setting_page(GROUPS, CHECKOUT).splitlines()

    assert [line.split(" | ")[2] for line in lines if line.startswith("| `LOG_LEVEL`")] == ["`info`", "`debug`"]
    assert sum(line.startswith("| `REDIS_URL`") for line in lines) == 1
