"""`make migrate`: brings the database up to date, whether or not the platform runs."""

from everturn_local.home import Home, HomeInUseError, load_secrets, run_lock, save_home, save_secrets
from everturn_local.migrations import run_migrations
from everturn_local.servers.databases import build_urls, save_database, save_roles
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.settings import LocalSettings, load_environment


def run_migrate(settings: LocalSettings) -> str:
    """Returns what was done. Starts Postgres for the time of the migration when nobody else runs it."""
    home = save_home(settings.everturn_home)
    try:
        with run_lock(home):
            _run_with_own_server(home)
    except HomeInUseError:
        _run_on_running_server(home)
        return "migrated the running platform's database"
    return "migrated"


def _run_with_own_server(home: Home) -> None:
    secrets = save_secrets(home)
    postgres = EmbeddedPostgres(home.postgres, password=secrets.postgres, log=home.logs / "postgres.log")
    postgres.start()
    try:
        save_roles(postgres, secrets)
        save_database(postgres)
        run_migrations(build_urls(postgres, secrets).owner, env=load_environment())
    finally:
        postgres.stop()


def _run_on_running_server(home: Home) -> None:
    secrets = load_secrets(home)
    postgres = EmbeddedPostgres(home.postgres, password=secrets.postgres)
    postgres.attach()
    run_migrations(build_urls(postgres, secrets).owner, env=load_environment())
