"""The engine in memory, with which the tests here run, passes the contract of pair engines."""

from dataclasses import replace

import pytest
from helpers.memory_pairs import MemoryPairs
from helpers.pair_engine_contract import PLAN, PairEngineContract, Subject

from exec_supervisor.broker.engine import EngineDown


class TestMemoryPairs(PairEngineContract):
    @pytest.fixture
    async def subject(self, engine: MemoryPairs) -> Subject:
        calls = ("start", "load_images", "remove", "load_leftovers", "watch")
        down = MemoryPairs(failing={call: EngineDown("away") for call in calls})
        return Subject(engine, replace(engine, is_own=False), down, PLAN, engine.end_executor, lambda: engine.pairs)
