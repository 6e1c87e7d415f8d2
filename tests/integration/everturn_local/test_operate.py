"""`make operate`."""

from pathlib import Path

import pytest

from everturn.redis.users import INGRESS, derive_password
from everturn_local.home import run_lock, save_home, save_secrets
from everturn_local.operate import NotRunning, load_operator, run_operate
from everturn_local.settings import LocalSettings

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "EVERTURN_MODEL": "offline"}


@pytest.fixture
def settings(tmp_path: Path) -> LocalSettings:
    """Of a home in which servers ran at the ports 5001 and 5002."""
    home = save_home(tmp_path / "home")
    save_secrets(home)
    for folder, port in ((home.postgres, 5001), (home.redis, 5002)):
        folder.mkdir(exist_ok=True)
        (folder / "port").write_text(f"{port}\n")
    return LocalSettings(everturn_home=home.root)


def test_where_nothing_runs_it_says_what_to_start(settings: LocalSettings):
    with pytest.raises(NotRunning, match="make run") as refusal:
        load_operator(settings, ENVIRONMENT)

    message = str(refusal.value)
    assert f"EVERTURN_HOME is {settings.everturn_home}" in message
    assert "EVERTURN_HOME=FOLDER make operate" in message


def test_the_command_gets_the_addresses_and_the_migrating_role(settings: LocalSettings):
    home = save_home(settings.everturn_home)
    secrets = save_secrets(home)

    with run_lock(home):
        operator = load_operator(settings, ENVIRONMENT)

    assert operator.argv[-2:] == ["-m", "ingress"]
    assert operator.env["DATABASE_URL"].endswith("@127.0.0.1:5001/everturn")
    assert secrets.everturn_owner in operator.env["DATABASE_OWNER_URL"]
    assert operator.env["REDIS_URL"] == f"redis://{INGRESS}:{derive_password(secrets.redis, INGRESS)}@127.0.0.1:5002/0"
    assert operator.env["OBJECTS_URL"] == home.objects_url
    assert "CLAMD_URL" not in operator.env


def test_without_a_command_it_lists_them_and_serves_nothing(settings: LocalSettings, capfd: pytest.CaptureFixture[str]):
    with run_lock(save_home(settings.everturn_home)):
        status = run_operate(settings, [], environment=ENVIRONMENT)

    printed = capfd.readouterr()
    assert status == 0
    assert "verify-erasure" in printed.out
    assert "usage: make operate" in printed.out
    assert "ingress" not in printed.out + printed.err
    assert 'make operate DO="keys list' in printed.err


def test_what_the_command_says_of_wrong_arguments_comes_through(
    settings: LocalSettings, capfd: pytest.CaptureFixture[str]
):
    with run_lock(save_home(settings.everturn_home)):
        status = run_operate(settings, ["nonsense"], environment=ENVIRONMENT)

    printed = capfd.readouterr().err
    assert status == 2
    assert "make operate: error: " in printed
    assert "invalid choice: 'nonsense'" in printed
    assert "ingress" not in printed
