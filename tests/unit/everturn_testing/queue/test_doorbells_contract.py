"""Doorbells in the wrong order break the contract."""

from collections.abc import Sequence

import pytest

from everturn.core.identity import Lane
from everturn.core.ids import ConversationId
from everturn_testing.queue.doorbells import MemoryDoorbells
from everturn_testing.queue.doorbells_contract import DoorbellsContract


class Backwards(MemoryDoorbells):
    async def next_ring(self, lanes: Sequence[Lane], *, timeout_s: float) -> ConversationId | None:
        return await super().next_ring(tuple(reversed(lanes)), timeout_s=timeout_s)


async def test_lanes_in_the_wrong_order_are_noticed() -> None:
    with pytest.raises(AssertionError):
        await DoorbellsContract().test_the_oldest_ring_of_the_first_lane_comes_first(Backwards())
