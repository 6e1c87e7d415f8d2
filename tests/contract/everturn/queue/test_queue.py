"""The queue in memory and in Postgres keep one contract."""

import random
from dataclasses import replace
from typing import get_args

import pytest

from everturn.queue.postgres import PostgresQueue
from everturn.turns.postgres_inbox import PostgresInbox
from everturn.turns.postgres_leases import PostgresSweeps
from everturn_testing.database_roles import Roles
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.queue.queue import MemoryQueue
from everturn_testing.queue.queue_contract import QueueContract
from everturn_testing.queue.queue_scenario import SHARE, Action, QueueScenario
from everturn_testing.turns.harness import Harness


class TestPostgresQueue(QueueContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness

    @pytest.fixture
    def queue(self, roles: Roles) -> PostgresQueue:
        return PostgresQueue(roles.ingress)


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_turn_has_the_position_of_the_list_model(
    postgres_harness: Harness, roles: Roles, seed: int
) -> None:
    await roles.superuser.execute("TRUNCATE conversation CASCADE")
    dice = random.Random(seed)
    harness = replace(postgres_harness, inbox=PostgresInbox(roles.ingress, share=SHARE))
    sweeps = PostgresSweeps(roles.worker, share=SHARE)
    world = QueueScenario(harness, PostgresQueue(roles.ingress), sweeps.claim_next_doorbells)

    await world.play([(dice.choice(("say", "say", *get_args(Action))), dice.randrange(20)) for _ in range(60)])


async def test_a_turn_that_is_rung_again_keeps_its_place(postgres_harness: Harness, roles: Roles) -> None:
    await roles.superuser.execute("TRUNCATE conversation CASCADE")
    one, two = await postgres_harness.say(), await postgres_harness.say()
    await roles.superuser.execute(
        "UPDATE turn SET doorbell_at = doorbell_at - interval '1 min' WHERE conversation_id = $1", one.conversation_id
    )
    assert len(await PostgresSweeps(roles.worker).claim_due_doorbells(takeovers=False)) == 1

    found = await PostgresQueue(roles.ingress).load_positions(
        [(postgres_harness.principal, receipt.conversation_id) for receipt in (one, two)]
    )

    assert [found[receipt.conversation_id].position.ahead for receipt in (one, two)] == [0, 1]


class TestMemoryQueue(QueueContract):
    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness

    @pytest.fixture
    def queue(self, memory_platform: MemoryPlatform) -> MemoryQueue:
        return MemoryQueue(memory_platform)
