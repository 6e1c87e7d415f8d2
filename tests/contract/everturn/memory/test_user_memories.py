"""User memories in memory and in Postgres keep the same contracts."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from everturn.core.errors import Conflict
from everturn.core.identity import Principal
from everturn.core.ids import TurnId
from everturn.memory.postgres_memories import PostgresUserMemories
from everturn_testing.database_roles import Roles
from everturn_testing.memory.user_memories import MemoryUserMemories
from everturn_testing.memory.user_memories_contract import (
    BeginTurn,
    MemoryBookContract,
    UserMemoriesContract,
    remembered,
)
from everturn_testing.turns.harness import Harness, turn_of

_people = itertools.count(1)


@pytest.fixture
def memories(roles: Roles) -> PostgresUserMemories:
    return PostgresUserMemories(roles.worker)


@pytest.fixture
def book(roles: Roles) -> PostgresUserMemories:
    return PostgresUserMemories(roles.ingress)


@pytest.fixture
def owner() -> Principal:
    return Principal("acme", "support", f"ann-{next(_people)}")


@pytest.fixture
def begin_turn(postgres_harness: Harness, owner: Principal) -> BeginTurn:
    harness = replace(postgres_harness, principal=owner)

    async def begin() -> TurnId:
        receipt = await harness.say()
        await harness.claim(receipt.conversation_id)
        return turn_of(receipt)

    return begin


class TestPostgresUserMemories(UserMemoriesContract):
    pass


class TestPostgresMemoryBook(MemoryBookContract):
    pass


async def test_a_write_during_an_erasure_is_erased_or_refused(
    memories: PostgresUserMemories, book: PostgresUserMemories, owner: Principal, begin_turn: BeginTurn
) -> None:
    running = await begin_turn()
    facts = [remembered(f"fact {n}") for n in range(20)]

    await asyncio.gather(
        *(memories.save(owner, fact, None, turn_id=running) for fact in facts[:10]),
        book.erase_all(owner),
        *(memories.save(owner, fact, None, turn_id=running) for fact in facts[10:]),
        return_exceptions=True,
    )

    assert await book.load_page(owner, limit=99, after=None) == ()
    with pytest.raises(Conflict):
        await memories.save(owner, facts[0], None, turn_id=running)


class TestMemoryUserMemories(UserMemoriesContract, MemoryBookContract):
    @pytest.fixture
    def memories(self) -> MemoryUserMemories:
        return MemoryUserMemories()

    @pytest.fixture
    def book(self, memories: MemoryUserMemories) -> MemoryUserMemories:
        return memories

    @pytest.fixture
    def begin_turn(self, memories: MemoryUserMemories) -> BeginTurn:
        numbers = itertools.count(1)

        async def begin() -> TurnId:
            turn_id = TurnId(f"turn_{next(numbers)}")
            memories.begin(turn_id)
            return turn_id

        return begin
