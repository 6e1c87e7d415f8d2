"""The bounds of running turns, enforced by the database for all workers together."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.core.identity import Lane, Principal, Role, lane_of
from everturn.core.ids import ConversationId
from everturn.postgres.pool import open_database
from everturn.turns.model import Claim, ClaimBounds, Deferred, SlotKind
from everturn.turns.postgres_inbox import PostgresInbox
from everturn.turns.postgres_leases import PostgresLeases
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_local.servers.databases import DatabaseUrls
from everturn_testing.core import SequentialIds
from everturn_testing.turns.harness import Harness, closing

BOUNDS = ClaimBounds(user_max=3, tenant_max=4, slots=8, extra=8)
PEOPLE = tuple(
    Principal(tenant, "p", user, frozenset({role}))
    for tenant, user, role in (
        ("a", "ann", Role.ANONYMOUS),
        ("a", "amy", Role.PAID),
        ("b", "ben", Role.ANONYMOUS),
        ("c", "cat", Role.REGISTERED),
    )
)
ANN, AMY, BEN, CAT = PEOPLE
Step = tuple[str, int]


@dataclass(slots=True)
class World:
    """Turns that wait and run, beside the rows."""

    harness: Harness
    claims: PostgresLeases
    waiting: dict[ConversationId, Principal] = field(default_factory=dict[ConversationId, Principal])
    running: list[tuple[Claim, bool]] = field(default_factory=list[tuple[Claim, bool]])
    """With whether it has an extra slot."""

    async def say(self, person: Principal, times: int = 1) -> None:
        for _ in range(times):
            receipt = await replace(self.harness, principal=person).say()
            self.waiting[receipt.conversation_id] = person

    async def claim(self, wanted: ConversationId) -> Principal:
        """A worker with a free ordinary slot processes this doorbell; returns whose turn was claimed."""
        claimed = await self.claims.try_claim_fairly(wanted, BOUNDS, SlotKind.ORDINARY)
        if isinstance(claimed, Deferred):
            assert claimed.lane is lane_of(self.waiting[wanted].roles)
            claimed = await self.claims.try_claim_fairly(claimed.to, BOUNDS, SlotKind.ORDINARY)
        assert isinstance(claimed, Claim), "a slot stays empty although a turn waits"
        return self._start(claimed, extra=False)

    async def claim_extra(self, slot: SlotKind) -> Principal | None:
        found = await self.claims.find_extra_turn(BOUNDS, slot)
        if found is None:
            return None
        claimed = await self.claims.try_claim_fairly(found, BOUNDS, slot)
        assert isinstance(claimed, Claim)
        return self._start(claimed, extra=True)

    def _start(self, claim: Claim, *, extra: bool) -> Principal:
        self.running.append((claim, extra))
        return self.waiting.pop(claim.lease.conversation_id)

    async def end(self, number: int) -> None:
        claim, _ = self.running.pop(number)
        await self.harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        await self.harness.leases.release(claim.lease, requeue=False)

    def over(self, person: Principal) -> tuple[int, int]:
        """By how much the person's tenant and the person would be over their bounds with one turn more."""
        runs = [claim.lease.principal for claim, _ in self.running]
        of_tenant = sum(who.tenant == person.tenant for who in runs)
        return max(0, of_tenant + 1 - BOUNDS.tenant_max), max(0, self.count(person) + 1 - BOUNDS.user_max)

    def count(self, person: Principal) -> int:
        return sum(claim.lease.principal.owner == person.owner for claim, _ in self.running)

    def may_have_extra(self, person: Principal, slot: SlotKind) -> bool:
        def group(who: Principal) -> tuple[str, Lane]:
            return who.tenant, lane_of(who.roles)

        beyond = max(0, len(self.running) - BOUNDS.slots)
        held = sum(extra and group(claim.lease.principal) == group(person) for claim, extra in self.running)
        own_bound = BOUNDS.user_max if slot is SlotKind.LENT else 1
        return self.count(person) < own_bound and min(held, beyond) < BOUNDS.extra - beyond


@pytest.fixture(scope="module")
def play(database: DatabaseUrls) -> Iterator[Callable[[Callable[[World], Awaitable[None]]], None]]:
    """Plays a scenario on an empty database."""

    async def run(scenario: Callable[[World], Awaitable[None]]) -> None:
        superuser = await asyncpg.connect(database.superuser)
        await superuser.execute("TRUNCATE conversation CASCADE")
        await superuser.execute("TRUNCATE block")
        async with (
            open_database(database.ingress, pool_size=2, application_name="test-ingress") as ingress,
            open_database(database.worker, pool_size=8, application_name="test-worker") as worker,
        ):
            leases = PostgresLeases(worker, owner="worker-1")

            async def expire(conversation_id: ConversationId) -> None:
                await superuser.execute(
                    "UPDATE lease SET expires_at = now() WHERE conversation_id = $1", conversation_id
                )

            async def not_used(*_: object) -> None:
                raise AssertionError

            harness = Harness(
                PostgresInbox(ingress, share=2),
                leases,
                leases,
                PostgresTimelines(worker),
                SequentialIds(),
                expire,
                give_feedback=not_used,
                age_lease=not_used,
                expire_holds=not_used,
            )
            await scenario(World(harness, leases))
        await superuser.close()

    yield lambda scenario: asyncio.run(run(scenario))


STEPS = st.lists(
    st.tuples(st.sampled_from(("say", "say", "claim", "claim", "reserved", "lent", "end")), st.integers(0, 999)),
    max_size=60,
)


@settings(max_examples=25)
@given(steps=STEPS)
def test_slots_are_filled_and_nobody_is_over_a_bound_while_others_wait(
    play: Callable[[Callable[[World], Awaitable[None]]], None], steps: list[Step]
) -> None:
    async def scenario(world: World) -> None:
        for attack, number in steps:
            await act(world, attack, number)
        # No starvation: if the doorbell of each deferred turn is rung again, every waiting turn is claimed.
        bells = list(world.waiting)
        for _ in range(2 * len(bells)):
            if len(world.running) >= BOUNDS.slots:
                await world.end(0)
            bell = bells.pop(0)
            if bell in world.waiting:
                await check_claim(world, bell)
            if bell in world.waiting:
                bells.append(bell)
            if not world.waiting:
                break
        assert not world.waiting

    play(scenario)


async def act(world: World, attack: str, number: int) -> None:
    if attack == "say":
        await world.say(PEOPLE[number % len(PEOPLE)])
    elif attack == "end" and world.running:
        await world.end(number % len(world.running))
    elif attack == "claim" and world.waiting and len(world.running) < BOUNDS.slots:
        await check_claim(world, list(world.waiting)[number % len(world.waiting)])
    elif attack in {"reserved", "lent"}:
        slot = SlotKind(attack)
        may = {person for person in world.waiting.values() if world.may_have_extra(person, slot)}
        given_to = await world.claim_extra(slot)
        assert given_to in may if may else given_to is None


async def check_claim(world: World, wanted: ConversationId) -> None:
    before = {person: world.over(person) for person in world.waiting.values()}
    person = await world.claim(wanted)
    assert before[person] == (0, 0) or before[person] == min(before.values())


def test_workers_together_keep_the_bound_of_a_user(play: Callable[[Callable[[World], Awaitable[None]]], None]) -> None:
    async def scenario(world: World) -> None:
        await world.say(ANN, 8)
        hostile = list(world.waiting)
        await world.say(CAT)

        claimed = await asyncio.gather(
            *(world.claims.try_claim_fairly(one, BOUNDS, SlotKind.ORDINARY) for one in hostile)
        )

        assert Counter(map(type, claimed)) == {Claim: BOUNDS.user_max, Deferred: 8 - BOUNDS.user_max}

    play(scenario)


def test_one_user_can_use_every_slot_if_nobody_waits(
    play: Callable[[Callable[[World], Awaitable[None]]], None],
) -> None:
    async def scenario(world: World) -> None:
        await world.say(ANN, 12)
        for _ in range(BOUNDS.slots):
            await world.claim(next(iter(world.waiting)))

        assert world.count(ANN) == BOUNDS.slots
        assert await world.claim_extra(SlotKind.LENT) is None

    play(scenario)


def test_a_newcomer_has_a_slot_beside_floods_of_other_tenants(
    play: Callable[[Callable[[World], Awaitable[None]]], None],
) -> None:
    async def scenario(world: World) -> None:
        people = [Principal(f"flood-{n % 5}", "p", f"user-{n}") for n in range(40)]
        for person in people:
            await world.say(person)
        for _ in range(BOUNDS.slots):
            await world.claim(next(iter(world.waiting)))
        while await world.claim_extra(SlotKind.LENT) is not None:
            pass
        await world.say(AMY)

        assert await world.claim_extra(SlotKind.RESERVED) == AMY

    play(scenario)


def test_a_flooding_user_does_not_delay_its_tenants_other_users(
    play: Callable[[Callable[[World], Awaitable[None]]], None],
) -> None:
    async def scenario(world: World) -> None:
        await world.say(ANN, 20)
        for _ in range(BOUNDS.slots):
            await world.claim(next(iter(world.waiting)))
        await world.say(replace(ANN, user_id="arthur"))

        assert await world.claim_extra(SlotKind.RESERVED) == replace(ANN, user_id="arthur")

    play(scenario)


def test_a_dead_workers_turn_is_taken_over_whatever_the_bounds(
    play: Callable[[Callable[[World], Awaitable[None]]], None],
) -> None:
    async def scenario(world: World) -> None:
        await world.say(ANN, 5)
        for _ in range(5):
            await world.claim(next(iter(world.waiting)))
        await world.say(CAT)
        lost = world.running[0][0].lease.conversation_id
        await world.harness.expire_lease(lost)

        taken = await world.claims.try_claim_fairly(lost, BOUNDS, SlotKind.ORDINARY)

        assert isinstance(taken, Claim)
        assert taken.attempt == 1

    play(scenario)
