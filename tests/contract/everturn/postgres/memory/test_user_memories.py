"""Durable user memory in Postgres: the contract."""

import itertools

import pytest

from everturn.model.identity import Principal
from everturn.ports.memory.user_memories import UserMemories
from everturn.postgres.memory.user_memories import PostgresUserMemories
from everturn.testing.contracts.user_memories import UserMemoriesContract
from everturn.testing.database_roles import Roles
from everturn.testing.port_shape import find_differences

_people = itertools.count(1)


class TestPostgresUserMemories(UserMemoriesContract):
    @pytest.fixture
    def memories(self, roles: Roles) -> PostgresUserMemories:
        return PostgresUserMemories(roles.worker)

    @pytest.fixture
    def owner(self) -> Principal:
        return Principal("acme", "support", f"ann-{next(_people)}")


def test_the_driver_takes_the_ports_calls() -> None:
    assert find_differences(UserMemories, PostgresUserMemories) == []
