"""`make migrate`."""

from pathlib import Path

import pytest

from everturn_local.home import run_lock, save_home, save_secrets
from everturn_local.migrate import run_migrate
from everturn_local.servers.databases import DATABASE, save_database, save_roles
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.settings import LocalSettings

VERSIONS = "SELECT count(*) FROM alembic_version"


@pytest.fixture
def settings(tmp_path: Path) -> LocalSettings:
    return LocalSettings(everturn_home=tmp_path / "home")


def test_migrating_works_without_a_running_platform_and_twice(settings: LocalSettings):
    assert run_migrate(settings) == "migrated"
    assert run_migrate(settings) == "migrated"


def test_migrating_uses_the_server_of_a_running_platform(settings: LocalSettings):
    home = save_home(settings.everturn_home)
    secrets = save_secrets(home)
    server = EmbeddedPostgres(home.postgres, password=secrets.postgres, durable=False)
    with run_lock(home):
        server.start()
        save_roles(server, secrets)
        save_database(server)

        done = run_migrate(settings)

    assert "running" in done
    assert server.run_sql(VERSIONS, database=DATABASE) == "1"
    server.stop()
