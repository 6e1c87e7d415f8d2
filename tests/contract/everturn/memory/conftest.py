"""A desk over Postgres with the worker's real role, and a principal of its own for each test."""

import itertools
from dataclasses import replace

import pytest

from everturn.memory.postgres_search import PostgresMemorySearch, PostgresSnippetIndex
from everturn_testing.database_roles import Roles
from everturn_testing.memory.search_contract import MemoryDesk
from everturn_testing.turns.harness import Harness

_people = itertools.count(1)


@pytest.fixture
def desk(postgres_harness: Harness, roles: Roles) -> MemoryDesk:
    harness = replace(
        postgres_harness, principal=replace(postgres_harness.principal, user_id=f"person-{next(_people)}")
    )
    return MemoryDesk(harness, PostgresMemorySearch(roles.worker), PostgresSnippetIndex(roles.worker))
