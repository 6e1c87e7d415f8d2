"""Presences in the wrong order break the contract."""

import pytest

from everturn.queue.model import WorkerPresence
from everturn_testing.queue.presences import MemoryPresences
from everturn_testing.queue.presences_contract import PresencesContract


class Backwards(MemoryPresences):
    async def load_all(self) -> tuple[WorkerPresence, ...]:
        return tuple(reversed(await super().load_all()))


async def test_workers_in_the_wrong_order_are_noticed() -> None:
    with pytest.raises(AssertionError):
        await PresencesContract().test_workers_are_listed_by_id_with_their_reports(Backwards())
