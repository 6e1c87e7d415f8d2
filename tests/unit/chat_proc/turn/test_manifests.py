"""Manifests are kept beside the turn: never waited for while it runs, and never its failure."""

import asyncio
from collections.abc import Callable

from prometheus_client import REGISTRY

from chat_proc.turn.manifests import MAX_WAITING, ManifestKeeper
from everturn.core.ids import ConversationId, TurnId
from everturn.core.metrics import MANIFESTS_LOST
from everturn_testing.files.objects import MemoryObjects

CONVERSATION, TURN = ConversationId("conv_1"), TurnId("turn_1")


class SlowObjects(MemoryObjects):
    """Saves nothing before `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.asked = asyncio.Event()

    async def save(self, key: str, data: bytes) -> None:
        self.asked.set()
        await self.go_on.wait()
        await super().save(key, data)


def build(text: str) -> Callable[[], bytes]:
    return text.encode


def count_lost() -> float:
    return next(sample.value for metric in MANIFESTS_LOST.collect() for sample in metric.samples)


def count_unexpected() -> float:
    return REGISTRY.get_sample_value("everturn_loop_errors_total", {"loop": "manifests"}) or 0.0


async def test_what_is_kept_is_saved_under_its_turn_and_round() -> None:
    objects = MemoryObjects()
    keeper = ManifestKeeper(objects, CONVERSATION, TURN)
    running = asyncio.create_task(keeper.run())

    keeper.keep(1, build("one"))
    keeper.keep(2, build("two"))
    keeper.close()
    await running

    assert objects.stored == {"conv_1/manifests/turn_1.1": b"one", "conv_1/manifests/turn_1.2": b"two"}


async def test_a_store_that_is_down_costs_a_count_and_no_more() -> None:
    objects = MemoryObjects()
    objects.down = True
    keeper = ManifestKeeper(objects, CONVERSATION, TURN)
    before, bugs = count_lost(), count_unexpected()

    keeper.keep(1, build("one"))
    keeper.close()
    await keeper.run()

    assert count_lost() == before + 1
    assert count_unexpected() == bugs


async def test_a_failed_manifest_is_counted_and_the_next_is_saved() -> None:
    def fail() -> bytes:
        return "\ud800".encode()

    objects = MemoryObjects()
    keeper = ManifestKeeper(objects, CONVERSATION, TURN)
    before, bugs = count_lost(), count_unexpected()

    keeper.keep(1, fail)
    keeper.keep(2, build("two"))
    keeper.close()
    await keeper.run()

    assert count_lost() == before + 1
    assert count_unexpected() == bugs + 1
    assert list(objects.stored) == ["conv_1/manifests/turn_1.2"]


async def test_a_slow_store_is_not_waited_for_and_the_queue_is_bounded() -> None:
    objects = SlowObjects()
    keeper = ManifestKeeper(objects, CONVERSATION, TURN)
    before = count_lost()

    for number in range(MAX_WAITING + 3):
        keeper.keep(number, build("x"))

    assert count_lost() == before + 3
    objects.go_on.set()
    keeper.close()
    await keeper.run()
    assert len(objects.stored) == MAX_WAITING


async def test_after_a_lost_lease_nothing_more_is_saved() -> None:
    objects = SlowObjects()
    keeper = ManifestKeeper(objects, CONVERSATION, TURN)
    running = asyncio.create_task(keeper.run())
    keeper.keep(1, build("on its way"))
    keeper.keep(2, build("waiting"))
    await asyncio.wait_for(objects.asked.wait(), 5)

    keeper.abandon()
    objects.go_on.set()
    keeper.close()
    await running

    assert list(objects.stored) == ["conv_1/manifests/turn_1.1"]
