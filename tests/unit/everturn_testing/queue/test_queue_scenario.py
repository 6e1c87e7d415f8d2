"""After any steps every waiting turn has the position of a list model; the Postgres driver has its own test."""

import asyncio
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.core.ids import ConversationId
from everturn_testing.core import SequentialIds
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.queue.queue import MemoryQueue
from everturn_testing.queue.queue_scenario import SHARE, Action, QueueScenario, Step
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.leases import MemoryLeases
from everturn_testing.turns.timelines import MemoryTimelines

STEPS = st.lists(st.tuples(st.sampled_from(get_args(Action)), st.integers(0, 20)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_every_turn_has_the_position_of_the_list_model(steps: list[Step]) -> None:
    asyncio.run(build_world().play(steps))


def build_world() -> QueueScenario:
    platform = MemoryPlatform()

    async def nothing(*_: object) -> None:
        return

    async def ring_next(conversation_id: ConversationId) -> None:
        platform.ring_next(conversation_id, SHARE)

    harness = Harness(
        inbox=MemoryInbox(platform, share=SHARE),
        leases=MemoryLeases(platform),
        rival=MemoryLeases(platform),
        timelines=MemoryTimelines(platform),
        ids=SequentialIds(),
        expire_lease=nothing,
        give_feedback=nothing,
        age_lease=nothing,
        expire_holds=nothing,
    )
    return QueueScenario(harness, MemoryQueue(platform), ring_next)
