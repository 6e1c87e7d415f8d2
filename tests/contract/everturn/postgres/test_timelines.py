"""Postgres keeps the contract of Timelines, also under contention."""

import pytest

from everturn_testing.turns.stage import Stage
from everturn_testing.turns.timelines_contract import AnnouncingContract, RecentBlocksContract, TimelinesContract


class TestPostgresTimelines(TimelinesContract, RecentBlocksContract, AnnouncingContract):
    @pytest.fixture
    def stage(self, postgres_stage: Stage) -> Stage:
        return postgres_stage
