"""A simulated queue: plays steps over the real rows or in memory, next to a model of lists.

After each step the position of every waiting turn must equal that of the model.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from everturn.core.identity import Lane, Principal, Role, lane_of
from everturn.core.ids import ConversationId
from everturn.queue.model import Queue, QueuePosition
from everturn.turns.model import Claim
from everturn_testing.turns.harness import Harness, closing

SHARE: Final = 2
"""How many turns of a tenant can have a doorbell on a lane in the harness's inbox."""
PEOPLE: Final = tuple(
    Principal(tenant, "p", user, frozenset({role}))
    for tenant, user, role in (
        ("place-a", "ann", Role.PAID),
        ("place-a", "amy", Role.PAID),
        ("place-b", "ben", Role.PAID),
        ("place-c", "cat", Role.REGISTERED),
    )
)
Action = Literal["say", "take", "requeue", "end"]
Step = tuple[Action, int]
"""The attack, and the number of its person or turn."""


@dataclass(slots=True)
class QueueScenario:
    """`ring_next` is what a worker does for the tenant of a conversation whose turn it claimed."""

    harness: Harness
    queue: Queue
    ring_next: Callable[[ConversationId], Awaitable[object]]
    lanes: dict[Lane, list[ConversationId]] = field(default_factory=dict[Lane, list[ConversationId]])
    beyond: list[ConversationId] = field(default_factory=list[ConversationId])
    running: list[Claim] = field(default_factory=list[Claim])
    people: dict[ConversationId, Principal] = field(default_factory=dict[ConversationId, Principal])

    async def play(self, steps: Sequence[Step]) -> None:
        """All steps, with a check after each."""
        for attack, number in steps:
            await self._do(attack, number)
            await self.check()

    async def _do(self, attack: Action, number: int) -> None:
        waiting = [*(one for lane in self.lanes.values() for one in lane), *self.beyond]
        match attack:
            case "say":
                await self._say(PEOPLE[number % len(PEOPLE)])
            case "take" if waiting:
                await self._take(waiting[number % len(waiting)])
            case "requeue" if self.running:
                claim = self.running.pop(number % len(self.running))
                await self.harness.leases.release(claim.lease, requeue=True)
                self._lane(claim.lease.conversation_id).append(claim.lease.conversation_id)
            case "end" if self.running:
                claim = self.running.pop(number % len(self.running))
                await self.harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
                await self.harness.leases.release(claim.lease, requeue=False)
            case _:
                pass

    async def _say(self, person: Principal) -> None:
        receipt = await replace(self.harness, principal=person).say()
        self.people[receipt.conversation_id] = person
        (self._lane(receipt.conversation_id) if self._has_room(person) else self.beyond).append(receipt.conversation_id)
        assert receipt.position == self._expected()[receipt.conversation_id]

    async def _take(self, conversation_id: ConversationId) -> None:
        self.running.append(await self.harness.claim(conversation_id))
        for places in (*self.lanes.values(), self.beyond):
            if conversation_id in places:
                places.remove(conversation_id)
        await self.ring_next(conversation_id)
        for other in list(self.beyond):
            if self.people[other].tenant == self.people[conversation_id].tenant and self._has_room(self.people[other]):
                self.beyond.remove(other)
                self._lane(other).append(other)

    async def check(self) -> None:
        """Check that every waiting turn has the expected position, and that other users can't see it."""
        expected = self._expected()
        asked = [(person, conversation_id) for conversation_id, person in self.people.items()]
        found = await self.queue.load_positions(asked)
        assert {conversation_id: turn.position for conversation_id, turn in found.items()} == expected
        strangers = [(replace(person, user_id="stranger"), conversation_id) for person, conversation_id in asked]
        assert await self.queue.load_positions(strangers) == {}

    def _expected(self) -> dict[ConversationId, QueuePosition]:
        places = {one: n for lane in self.lanes.values() for n, one in enumerate(lane)}
        for n, one in enumerate(self.beyond):
            person = self.people[one]
            own = sum(_key(self.people[other]) == _key(person) for other in self.beyond[:n])
            places[one] = len(self._lane(one)) + own
        return {one: QueuePosition(place) for one, place in places.items()}

    def _lane(self, conversation_id: ConversationId) -> list[ConversationId]:
        return self.lanes.setdefault(lane_of(self.people[conversation_id].roles), [])

    def _has_room(self, person: Principal) -> bool:
        on_lane = self.lanes.setdefault(lane_of(person.roles), [])
        return sum(self.people[other].tenant == person.tenant for other in on_lane) < SHARE


def _key(person: Principal) -> tuple[str, Lane]:
    return person.tenant, lane_of(person.roles)
