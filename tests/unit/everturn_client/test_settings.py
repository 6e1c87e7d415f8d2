"""The client's environment."""

from pathlib import Path

import pytest

from everturn_client.settings import load_settings


def test_an_empty_environment_gives_the_local_server() -> None:
    settings = load_settings({"HOME": "/home/ann", "EVERTURN_URL": "", "XDG_STATE_HOME": "relative"})

    assert settings.url == "http://127.0.0.1:8080"
    assert settings.token is None
    assert settings.state_dir == Path("/home/ann/.local/state/everturn")
    assert settings.colour


@pytest.mark.parametrize(
    ("variable", "zone"), [("Asia/Tokyo", "Asia/Tokyo"), (":UTC", "UTC"), ("CET-1CEST,M3.5.0", None), ("/x/y", None)]
)
def test_the_time_zone_is_that_of_tz_where_it_names_one(variable: str, zone: str | None) -> None:
    assert load_settings({"TZ": variable}).time_zone == zone


def test_whitespace_around_address_and_token_is_left_out() -> None:
    settings = load_settings({"EVERTURN_URL": "https://chat.test\r", "EVERTURN_TOKEN": " evk_secret\r\n"})

    assert (settings.url, settings.token) == ("https://chat.test", "evk_secret")
    assert load_settings({"EVERTURN_TOKEN": " \r\n"}).token is None


def test_the_environment_is_used() -> None:
    settings = load_settings(
        {"EVERTURN_URL": "https://chat.test", "EVERTURN_TOKEN": "secret", "XDG_STATE_HOME": "/state", "NO_COLOR": "1"}
    )

    assert (settings.url, settings.token, settings.colour) == ("https://chat.test", "secret", False)
    assert settings.state_dir == Path("/state/everturn")
