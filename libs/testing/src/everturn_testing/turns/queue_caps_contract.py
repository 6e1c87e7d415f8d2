"""The contract of Inbox for a full queue as tests.

A subclass or its module defines the fixture `capped`: a harness whose empty queue takes CAPS.
"""

from dataclasses import replace

import pytest

from everturn.core.identity import Principal, Role
from everturn.queue.model import QueueCaps, QueueFull
from everturn.turns.inbox import IdempotencyKey, Receipt
from everturn_testing.turns.harness import Harness

CAPS = QueueCaps(16)
"""Two turns of a user, eight of a tenant on a lane, twelve of a tenant."""


async def send(harness: Harness, tenant: str, user: str, *roles: Role, key: IdempotencyKey | None = None) -> Receipt:
    """A message of a user to a new conversation."""
    principal = Principal(tenant, "p", user, frozenset(roles or (Role.REGISTERED,)))
    return await replace(harness, principal=principal).say(key=key)


async def fill(harness: Harness, tenant: str, *roles: Role, turns: int) -> None:
    """Turns of as many users of a tenant as are needed."""
    for n in range(turns):
        await send(harness, tenant, f"{''.join(roles)}{n // CAPS.user}", *roles)


async def refused(harness: Harness, tenant: str, user: str, *roles: Role) -> str:
    """What is full for a message of a user."""
    with pytest.raises(QueueFull) as caught:
        await send(harness, tenant, user, *roles)
    return caught.value.full


class QueueCapsContract:
    """Required of every Inbox."""

    async def test_a_user_holds_at_most_an_eighth_of_the_queue(self, capped: Harness) -> None:
        await fill(capped, "a", turns=CAPS.user)

        assert await refused(capped, "a", "0") == "user"
        await send(capped, "a", "other")

    async def test_a_tenant_holds_at_most_half_of_the_queue_on_a_lane(self, capped: Harness) -> None:
        await fill(capped, "a", turns=CAPS.tenant_on_lane)

        assert await refused(capped, "a", "other") == "tenant"
        await send(capped, "a", "other", Role.PAID)
        await send(capped, "b", "other")

    async def test_a_tenant_never_fills_the_queue_for_others(self, capped: Harness) -> None:
        await fill(capped, "a", turns=CAPS.tenant_on_lane)
        await fill(capped, "a", Role.PAID, turns=CAPS.tenant - CAPS.tenant_on_lane)

        assert await refused(capped, "a", "other", Role.PAID) == "tenant"
        assert await refused(capped, "a", "other", Role.ADMIN) == "tenant"
        await fill(capped, "b", turns=CAPS.total - CAPS.tenant)
        assert await refused(capped, "c", "other") == "queue"

    async def test_a_turn_that_is_claimed_leaves_its_place(self, capped: Harness) -> None:
        receipts = [await send(capped, "a", "ann") for _ in range(CAPS.user)]
        assert await refused(capped, "a", "ann") == "user"

        await capped.leases.try_claim(receipts[0].conversation_id)

        await send(capped, "a", "ann")

    async def test_an_accepted_request_gets_its_answer_again_while_the_queue_is_full(self, capped: Harness) -> None:
        key = IdempotencyKey("POST /m", "k", "h")
        first = await send(capped, "a", "ann", key=key)
        await fill(capped, "a", turns=CAPS.tenant_on_lane - 1)
        assert await refused(capped, "a", "ann") == "tenant"

        again = await send(capped, "a", "ann", key=key)

        assert (again.turn_id, again.replayed) == (first.turn_id, True)

    async def test_a_message_for_an_open_turn_needs_no_place(self, capped: Harness) -> None:
        own = replace(capped, principal=Principal("a", "p", "ann"))
        first, *_ = [await own.say() for _ in range(CAPS.user)]

        assert (await own.say("More.", first.conversation_id)).signal_id is not None
