"""The bundles of an ingress: how often they are read, how long a request waits, what a refusal says."""

import asyncio

import pytest

from everturn.bundles.registry import BUILT_IN, BundleListing
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn_testing.core import FixedClock
from ingress import bundles as module
from ingress.bundles import KEEP_S, MAX_NAMED, Bundles, OpenBundles
from ingress.errors import ProblemError

ANN = Principal("acme", "support", "ann")


class Registry:
    """Counts reads; `is_silent` reads don't end."""

    def __init__(self, *listings: BundleListing) -> None:
        self.clock = FixedClock()
        self.listings = listings
        self.reads = 0
        self.is_silent = False
        self.bundles = Bundles(self.load, monotonic=self.clock.monotonic)

    async def load(self) -> tuple[BundleListing, ...]:
        self.reads += 1
        if self.is_silent:
            await asyncio.Event().wait()
        return self.listings


async def test_all_requests_of_a_second_share_one_read() -> None:
    registry = Registry(BUILT_IN)

    await asyncio.gather(*(registry.bundles.load_open(ANN) for _ in range(20)))
    registry.clock.advance(KEEP_S)
    await registry.bundles.load_list(ANN)
    assert registry.reads == 1

    registry.clock.advance(0.1)
    await registry.bundles.load_list(ANN)
    assert registry.reads == 2


async def test_no_request_waits_long_for_a_silent_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_LIMIT_S", 0.05)
    registry = Registry(BUILT_IN)
    registry.is_silent = True

    async with asyncio.timeout(20):
        found = await asyncio.gather(*(registry.bundles.load_open(ANN) for _ in range(200)))
        with pytest.raises(Unavailable):
            await registry.bundles.load_list(ANN)

    assert set(found) == {OpenBundles(frozenset({"default"}), is_complete=False)}


async def test_default_means_the_default_bundle_whatever_its_id() -> None:
    registry = Registry(BundleListing("desk", "", "", is_default=True), BundleListing("help", "", ""))

    assert (await registry.bundles.load_open(ANN)).ids == {"default", "desk", "help"}


async def test_a_bundle_called_default_that_is_not_the_default_one_is_not_named() -> None:
    closed = BundleListing("desk", "", "", is_default=True, roles=("paid",))
    registry = Registry(BundleListing("default", "", ""), closed)

    assert (await registry.bundles.load_open(ANN)).ids == frozenset()
    assert (await registry.bundles.load_list(ANN)).bundles == ()


def test_the_refusal_of_a_person_who_may_use_no_bundle() -> None:
    with pytest.raises(ProblemError) as refused:
        OpenBundles(frozenset()).check("default")

    assert refused.value.errors[0]["message"] == "no bundle is open to you"


def test_a_refusal_names_only_the_first_of_many_bundles() -> None:
    found = OpenBundles(frozenset(f"bundle-{number:03}" for number in range(MAX_NAMED + 5)))

    with pytest.raises(ProblemError) as refused:
        found.check("typo")

    message = refused.value.errors[0]["message"]
    assert message.startswith("must be one of bundle-000, bundle-001,")
    assert message.endswith("bundle-019 or another of the 25 that GET /bundles lists")
