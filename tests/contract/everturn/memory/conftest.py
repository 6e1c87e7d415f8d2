"""A desk over Postgres with the worker's real role, and a principal of its own for each test."""

import itertools
from dataclasses import replace

import pytest

from everturn.memory.postgres_search import PostgresMemorySearch, PostgresSnippetIndex
from everturn_testing.database_roles import Roles
from everturn_testing.memory.search_contract import MemoryDesk
from everturn_testing.turns.stage import Stage

_people = itertools.count(1)


@pytest.fixture
def desk(postgres_stage: Stage, roles: Roles) -> MemoryDesk:
    stage = replace(postgres_stage, principal=replace(postgres_stage.principal, user_id=f"person-{next(_people)}"))
    return MemoryDesk(stage, PostgresMemorySearch(roles.worker), PostgresSnippetIndex(roles.worker))
