"""Fixtures for every kind of test: one embedded Postgres and one Redis-protocol server per session, fresh databases.

All are synchronous, so they may be asked for by synchronous and asynchronous tests and fixtures.
"""

import functools
import itertools
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpcore2
import pytest
import structlog
from helpers.databases import remove_database, save_database_copy
from hypothesis import settings

from everturn_local.home import Home, Secrets, save_home, save_secrets
from everturn_local.migrations import run_migrations
from everturn_local.servers.databases import DatabaseUrls, build_urls, save_database, save_roles
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.servers.redis import EmbeddedRedis
from everturn_local.settings import load_environment

# An example may take as long as a busy machine needs for it.
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")

# What is logged is seen of failed tests only. To draw each traceback for a terminal, as is the default, takes a tenth
# of the time of tests that make things fail.
*_processors, _ = structlog.get_config()["processors"]
_plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*_processors, _plain])

# Every HTTP client reads all public certificate authorities, for 40 ms. A test makes hundreds, and asks none of them.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)

SLOW = "SLOW"
"""Runs the tests that are marked as slow, and all cases of those that try some."""
SAMPLED = "SAMPLED"
"""Set when all tests run together, which must end in time: of files whose tests start processes, not all run then."""
HALVED = ("tests/browser/", "tests/chaos/", "tests/e2e/", "tests/integration/", "tests/sandbox/")

TEMPLATE = "everturn_template"
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip slow tests unless they are asked for; when all tests run, also every second test of a file in the folders
    HALVED, and two of three that are marked as sampled."""
    if os.environ.get(SLOW):
        return
    seen: Counter[Path] = Counter()
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: make test SLOW=1"))
        elif os.environ.get(SAMPLED) and (step := _find_step(item)) > 1:
            if seen[item.path] % step:
                item.add_marker(pytest.mark.skip(reason="sampled: make test SLOW=1"))
            seen[item.path] += 1


def _find_step(item: pytest.Item) -> int:
    """Each how many tests of its file one runs."""
    if item.get_closest_marker("sampled"):
        return 3
    return 2 if item.nodeid.startswith(HALVED) else 1


@pytest.fixture(scope="session")
def server_home() -> Iterator[Home]:
    """Not in pytest's own folder: each session that begins closes that one to other users, such as the servers'."""
    folder = Path(tempfile.mkdtemp(prefix="everturn-servers-"))
    folder.chmod(0o711)
    yield save_home(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def passwords(server_home: Home) -> Secrets:
    return save_secrets(server_home)


@pytest.fixture(scope="session")
def postgres_server(server_home: Home, passwords: Secrets) -> Iterator[EmbeddedPostgres]:
    """The session's Postgres with the platform's roles. Don't kill it; fault tests start their own."""
    server = EmbeddedPostgres(server_home.postgres, password=passwords.postgres, durable=False)
    server.start()
    save_roles(server, passwords)
    yield server
    server.stop()
    log = (server_home.postgres.parent / "postgres.log").read_text().splitlines()
    assert [line for line in log if "was terminated by" in line or "PANIC" in line] == []


@pytest.fixture(scope="session")
def redis_server(server_home: Home, passwords: Secrets) -> Iterator[EmbeddedRedis]:
    """The session's Redis-protocol server. Don't kill it; fault tests start their own."""
    server = EmbeddedRedis(server_home.redis, password=passwords.redis, durable=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def migrated_template(postgres_server: EmbeddedPostgres, passwords: Secrets) -> str:
    """The name of a database with the newest schema and no rows, from which fresh ones are copied."""
    save_database(postgres_server, TEMPLATE)
    run_migrations(build_urls(postgres_server, passwords, TEMPLATE).owner, env=load_environment())
    return TEMPLATE


@pytest.fixture(scope="module")
def database(postgres_server: EmbeddedPostgres, passwords: Secrets, migrated_template: str) -> Iterator[DatabaseUrls]:
    """A fresh, migrated, empty database for one test module; URLs per role."""
    name = f"test_{next(_numbers)}"
    save_database_copy(postgres_server, name, template=migrated_template)
    yield build_urls(postgres_server, passwords, name)
    remove_database(postgres_server, name)


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    """The session's Redis server, emptied for this test."""
    redis_server.empty()
    return redis_server.url


@pytest.fixture
def repository() -> Path:
    """The top folder of the checkout."""
    return Path(__file__).resolve().parent.parent
