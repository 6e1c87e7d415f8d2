"""Warm pairs with a real engine: given to one run each, replaced when they die, and what a dead broker has left."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import docker
from helpers.broker import OwnBroker
from helpers.calling import Caller
from helpers.waiting import wait_until
from leaks.engines import EngineView, load_pairs

Call = Callable[[], AbstractAsyncContextManager[Caller]]


def load_names(view: EngineView) -> frozenset[str]:
    return frozenset(name for name, _ in view.load_containers())


def is_replaced(broker: OwnBroker, view: EngineView, before: frozenset[str]) -> bool:
    """Whether a pair is warm again, and none of the containers from before is there."""
    states = [pair.state for pair in load_pairs(str(broker.socket)).pairs]
    return states == ["warm"] and not before & load_names(view)


async def test_a_warm_pair_is_given_to_one_run_and_another_takes_its_place(
    call: Call, broker: OwnBroker, view: EngineView
):
    ready = load_names(view)

    async with call() as caller:
        started = await caller.start("warm")
        given = load_names(view)
    await wait_until(lambda: is_replaced(broker, view, ready))

    assert started.warm
    assert ready <= given


async def test_a_warm_pair_that_dies_is_replaced(
    call: Call, broker: OwnBroker, view: EngineView, client: docker.APIClient
):
    before = load_names(view)

    client.kill(min(before))
    await wait_until(lambda: is_replaced(broker, view, before))

    async with call() as caller:
        assert (await caller.start("warm")).warm


async def test_the_next_broker_cleans_up_after_a_killed_one(
    call: Call,
    broker: OwnBroker,
    view: EngineView,
    client: docker.APIClient,
    images: dict[str, str],
    shape: tuple[int, int],
):
    async with call() as caller:
        await caller.start_and_attach()
        before = len(view.load_containers())

        broker.kill()
        rest = await caller.reader.read()

    await wait_until(lambda: not view.load_containers())
    left = set(view.load_volumes())
    name, value = broker.label.split("=")
    labels = {name: value, "everturn.pair": "never-started", "everturn.expires": "9999999999"}
    client.create_container(images["executor_image"], labels=labels, name=f"everturn-never-started-{value}")
    broker.start()
    await wait_until(lambda: not left & set(view.load_volumes()))

    # One was attached, one warm; the check after the test finds that the container is gone, too.
    containers, volumes = shape
    assert (before, rest, len(left)) == (2 * containers, b"", 2 * volumes)
