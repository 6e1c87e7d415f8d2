"""The command that brings a database up to date."""

from pathlib import Path

import pytest

from everturn.core.errors import Invalid
from ingress.operations.commands import build_migrate_command, parse_arguments

URLS = {
    "DATABASE_ADMIN_URL": "postgresql://postgres:a@h/postgres",
    "DATABASE_INGRESS_URL": "postgresql://everturn_ingress:i@h/everturn",
    "DATABASE_WORKER_URL": "postgresql://everturn_worker:w@h/everturn",
}
OWNER = "postgresql://everturn_owner:o@h/everturn"


class Calls:
    """What was done, in order."""

    def __init__(self) -> None:
        self.made: list[tuple[str, ...]] = []

    def prepare(self, admin: str, owner: str, ingress: str, worker: str) -> None:
        self.made.append((admin, owner, ingress, worker))

    def migrate(self, folder: Path) -> None:
        self.made.append((str(folder),))

    def run(self) -> int:
        command = build_migrate_command(self.prepare, self.migrate)
        _, read = parse_arguments({"migrate": command}, ["migrate", "/folder"], default="migrate")
        return command.run(read)


@pytest.fixture(autouse=True)
def no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*URLS, "DATABASE_OWNER_URL"):
        monkeypatch.delenv(name, raising=False)


def test_with_the_owners_address_the_migrations_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DATABASE_OWNER_URL", OWNER)
    calls = Calls()

    assert calls.run() == 0
    assert calls.made == [("/folder",)]


def test_with_a_superusers_address_the_server_is_prepared_before(monkeypatch: pytest.MonkeyPatch):
    for name, url in (URLS | {"DATABASE_OWNER_URL": OWNER}).items():
        monkeypatch.setenv(name, url)
    calls = Calls()

    assert calls.run() == 0
    admin, ingress, worker = URLS.values()
    assert calls.made == [(admin, OWNER, ingress, worker), ("/folder",)]


@pytest.mark.parametrize("absent", ["DATABASE_OWNER_URL", "DATABASE_INGRESS_URL", "DATABASE_WORKER_URL"])
def test_what_is_missing_is_named_and_nothing_is_done(absent: str, monkeypatch: pytest.MonkeyPatch):
    for name, url in (URLS | {"DATABASE_OWNER_URL": OWNER}).items():
        if name != absent:
            monkeypatch.setenv(name, url)
    calls = Calls()

    with pytest.raises(Invalid, match=absent):
        calls.run()
    assert calls.made == []
