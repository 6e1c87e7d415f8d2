"""The contracts of UserMemories and MemoryBook as tests.

A subclass or its module defines the fixtures `memories`, `book` over the same rows, `owner`, and `begin_turn`, which
starts a turn of the owner.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from everturn.core.errors import Conflict
from everturn.core.identity import Principal
from everturn.core.ids import TurnId
from everturn.memory.search import QueryVector
from everturn.memory.user_memories import (
    MAX_MEMORIES,
    ForgottenByOwner,
    MemoryBook,
    MemoryPosition,
    UserMemories,
    UserMemory,
    make_memory_id,
)
from everturn_testing.core import BEGINNING
from everturn_testing.memory.search_contract import ENCODER, point

BeginTurn = Callable[[], Awaitable[TurnId]]


def remembered(text: str, *, age_days: int = 0, pinned: bool = False, salience: float = 0.5) -> UserMemory:
    moment = BEGINNING - timedelta(days=age_days)
    return UserMemory(make_memory_id(text), text, moment, moment, ("label",), pinned, 0.8, salience)


class UserMemoriesContract:
    """Required of every UserMemories."""

    async def test_what_is_saved_comes_back_as_it_was(self, memories: UserMemories, owner: Principal) -> None:
        one, other = remembered("Prefers metric units."), remembered("Works at Acme.", pinned=True)
        for memory in (one, other):
            await memories.save(owner, memory, None)

        assert await memories.load(owner, [other.id, "mem_unknown", one.id]) == (other, one)

    async def test_saving_a_memory_again_keeps_its_creation_time(
        self, memories: UserMemories, owner: Principal
    ) -> None:
        first = remembered("Prefers tea.", age_days=5)
        again = replace(first, text="prefers TEA.", pinned=True, created_at=BEGINNING, updated_at=BEGINNING)
        await memories.save(owner, first, None)
        await memories.save(owner, again, None)

        (found,) = await memories.load(owner, [first.id])
        assert found == replace(again, created_at=first.created_at)

    async def test_a_paused_worker_does_not_overwrite_newer_memories(
        self, memories: UserMemories, owner: Principal
    ) -> None:
        newer = remembered("Prefers coffee.", age_days=1)
        await memories.save(owner, newer, None)

        await memories.save(
            owner, replace(newer, text="prefers COFFEE", updated_at=newer.updated_at - timedelta(1)), None
        )

        assert await memories.load(owner, [newer.id]) == (newer,)

    async def test_a_forgotten_memory_is_gone(self, memories: UserMemories, owner: Principal) -> None:
        memory = remembered("Gone.")
        await memories.save(owner, memory, None)

        assert await memories.forget(owner, memory.id)
        assert not await memories.forget(owner, memory.id)
        assert await memories.load(owner, [memory.id]) == ()

    async def test_the_hotset_is_ordered_by_pin_salience_and_age(
        self, memories: UserMemories, owner: Principal
    ) -> None:
        wanted = [
            remembered("pinned", pinned=True, salience=0.1, age_days=9),
            remembered("matters", salience=0.9, age_days=9),
            remembered("new", age_days=1),
            remembered("old", age_days=8),
        ]
        for memory in reversed(wanted):
            await memories.save(owner, memory, None)

        assert await memories.load_hotset(owner, 3) == tuple(wanted[:3])

    async def test_similarity_is_computed_for_vectors_of_the_same_encoder(
        self, memories: UserMemories, owner: Principal
    ) -> None:
        await memories.save(owner, remembered("same"), QueryVector(ENCODER, point(1.0)))
        await memories.save(owner, remembered("other"), QueryVector("other-encoder", point(1.0)))
        await memories.save(owner, remembered("none"), None)

        found = await memories.load_candidates(owner, QueryVector(ENCODER, point(0.5)))
        without = await memories.load_candidates(owner, None)

        assert {each.memory.text: each.likeness for each in found} == {"same": 0.5, "other": None, "none": None}
        assert {each.likeness for each in without} == {None}

    async def test_strangers_see_and_change_nothing(self, memories: UserMemories, owner: Principal) -> None:
        memory = remembered("secret")
        await memories.save(owner, memory, None)

        for who in (replace(owner, user_id="bob"), replace(owner, project="sales"), replace(owner, tenant="rival")):
            assert await memories.load(who, [memory.id]) == ()
            assert await memories.load_hotset(who, 8) == ()
            assert await memories.load_candidates(who, None) == ()
            assert not await memories.forget(who, memory.id)

        assert await memories.load(owner, [memory.id]) == (memory,)

    async def test_the_number_of_memories_is_bounded(self, memories: UserMemories, owner: Principal) -> None:
        for n in range(MAX_MEMORIES):
            await memories.save(owner, remembered(f"fact {n}"), None)

        with pytest.raises(Conflict, match="the limit"):
            await memories.save(owner, remembered("one more"), None)
        await memories.save(owner, remembered("fact 1", pinned=True), None)


class MemoryBookContract:
    """Required of every MemoryBook."""

    async def test_pages_list_memories_by_last_change(
        self, memories: UserMemories, book: MemoryBook, owner: Principal
    ) -> None:
        for n, age in enumerate((2, 0, 1, 1, 3)):
            await memories.save(owner, remembered(f"fact {n} of {age} days", age_days=age), None)
        for name in ("a", "b"):
            await memories.save(owner, remembered(name, age_days=1), None)

        seen: list[UserMemory] = []
        after: MemoryPosition | None = None
        while page := await book.load_page(owner, limit=2, after=after):
            seen += page
            after = MemoryPosition(page[-1].updated_at, page[-1].id)

        assert seen == list(await book.load_page(owner, limit=100, after=None))
        assert seen == sorted(seen, key=lambda memory: (memory.updated_at, memory.id), reverse=True)
        assert len({memory.id for memory in seen}) == len(seen) == 7

    async def test_an_earlier_turn_can_not_write_an_erased_memory_again(
        self, memories: UserMemories, book: MemoryBook, owner: Principal, begin_turn: BeginTurn
    ) -> None:
        memory, other = remembered("Lives in Oslo."), remembered("Drinks tea.")
        await memories.save(owner, memory, None)
        running = await begin_turn()

        assert await book.erase(owner, memory.id)

        with pytest.raises(ForgottenByOwner):
            await memories.save(owner, memory, None, turn_id=running)
        with pytest.raises(ForgottenByOwner):
            await memories.save(owner, remembered("Lives in Norway."), None, turn_id=running, instead_of=memory.id)
        await memories.save(owner, other, None, turn_id=running)
        assert await book.load_page(owner, limit=9, after=None) == (other,)

    async def test_a_later_turn_can_store_an_erased_memory_again(
        self, memories: UserMemories, book: MemoryBook, owner: Principal, begin_turn: BeginTurn
    ) -> None:
        memory = remembered("Lives in Oslo.")
        await memories.save(owner, memory, None)
        await book.erase(owner, memory.id)

        await memories.save(owner, memory, None, turn_id=await begin_turn())

        assert await memories.load(owner, [memory.id]) == (memory,)

    async def test_after_erasing_all_a_running_turn_writes_nothing(
        self, memories: UserMemories, book: MemoryBook, owner: Principal, begin_turn: BeginTurn
    ) -> None:
        for text in ("one", "two"):
            await memories.save(owner, remembered(text), None)
        running = await begin_turn()

        assert await book.erase_all(owner) == 2
        assert await book.erase_all(owner) == 0

        with pytest.raises(ForgottenByOwner):
            await memories.save(owner, remembered("three"), None, turn_id=running)
        await memories.save(owner, remembered("four"), None, turn_id=await begin_turn())
        assert [memory.text for memory in await book.load_page(owner, limit=9, after=None)] == ["four"]

    async def test_a_missing_memory_can_not_be_erased(
        self, memories: UserMemories, book: MemoryBook, owner: Principal, begin_turn: BeginTurn
    ) -> None:
        running = await begin_turn()

        assert not await book.erase(owner, remembered("never").id)

        await memories.save(owner, remembered("never"), None, turn_id=running)

    async def test_a_stranger_sees_and_erases_nothing(
        self, memories: UserMemories, book: MemoryBook, owner: Principal
    ) -> None:
        memory = remembered("secret")
        await memories.save(owner, memory, None)

        for who in (replace(owner, user_id="bob"), replace(owner, project="sales"), replace(owner, tenant="rival")):
            assert await book.load_page(who, limit=9, after=None) == ()
            assert not await book.erase(who, memory.id)
            assert await book.erase_all(who) == 0

        assert await memories.load(owner, [memory.id]) == (memory,)
