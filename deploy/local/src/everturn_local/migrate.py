"""`make migrate`: updates the database, whether or not the platform runs."""

from everturn_local.home import Home, HomeInUseError, load_secrets, run_lock, save_home
from everturn_local.migrations import run_migrations
from everturn_local.servers.databases import build_urls
from everturn_local.servers.migrated import run_database
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.settings import LocalSettings, load_environment


def run_migrate(settings: LocalSettings) -> str:
    """Migrate and return a description. Starts Postgres for the migration if no platform runs it."""
    home = save_home(settings.everturn_home)
    try:
        with run_lock(home), run_database(home):
            return "migrated"
    except HomeInUseError:
        _run_on_running_server(home)
        return "migrated the running platform's database"


def _run_on_running_server(home: Home) -> None:
    secrets = load_secrets(home)
    postgres = EmbeddedPostgres(home.postgres, password=secrets.postgres)
    postgres.attach()
    run_migrations(build_urls(postgres, secrets).owner, env=load_environment())
