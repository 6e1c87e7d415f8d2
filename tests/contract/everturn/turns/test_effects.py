"""The effect ledgers in memory and in Postgres keep one contract; erasure reaches both kinds of rows."""

import pytest

from everturn.conversations.postgres import PostgresConversations
from everturn.turns.model import Effect, EffectState
from everturn.turns.postgres_effects import PostgresEffects
from everturn_testing.database_roles import Roles
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.effects import MemoryEffects
from everturn_testing.turns.effects_contract import EffectsContract, build_key
from everturn_testing.turns.harness import ANN, Harness


@pytest.fixture
def ledger(roles: Roles) -> PostgresEffects:
    return PostgresEffects(roles.worker)


class TestPostgresEffects(EffectsContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness


async def test_erasing_a_conversation_erases_what_its_programs_did(
    postgres_harness: Harness, ledger: PostgresEffects, roles: Roles
) -> None:
    claim = await postgres_harness.start_turn()
    await ledger.begin(claim.lease, build_key(claim), Effect.IRREVERSIBLE)
    await ledger.settle(claim.lease, build_key(claim), EffectState.COMMITTED, '{"secret": 1}')

    erasure = await PostgresConversations(roles.ingress).erase(ANN, claim.lease.conversation_id)

    assert erasure.rows["tool_effect"] == 1


class TestMemoryEffects(EffectsContract):
    @pytest.fixture
    def ledger(self, memory_platform: MemoryPlatform) -> MemoryEffects:
        return MemoryEffects(memory_platform)

    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness
