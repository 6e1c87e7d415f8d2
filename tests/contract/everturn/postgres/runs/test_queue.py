"""Postgres keeps the contract of Queue."""

import pytest

from everturn.postgres.runs.queue import PostgresQueue
from everturn.testing.database_roles import Roles
from everturn.testing.limits.queue_contract import QueueContract
from everturn.testing.turns.stage import Stage


class TestPostgresQueue(QueueContract):
    @pytest.fixture
    def stage(self, postgres_stage: Stage) -> Stage:
        return postgres_stage

    @pytest.fixture
    def queue(self, roles: Roles) -> PostgresQueue:
        return PostgresQueue(roles.ingress)
