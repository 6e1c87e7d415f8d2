"""Rates by principal and role; without the shared buckets each process grants a fourth."""

import pytest

from everturn.core.identity import Principal, Role
from everturn.limits.token_buckets import Limit
from everturn_testing.core import FixedClock
from everturn_testing.limits.token_buckets import MemoryTokenBuckets
from ingress.admission.limits import Drawn, RateGate, hash_key, is_write
from ingress.errors import ProblemError
from ingress.metrics import IngressMetrics

ANN, BEN = Principal("t", "p", "ann"), Principal("t", "p", "ben")


class World:
    """A gate with eight writes a minute for the registered and two for the anonymous."""

    def __init__(self, tokens: int = 8) -> None:
        self.clock = FixedClock()
        self.buckets = MemoryTokenBuckets(monotonic=self.clock.monotonic)
        self.metrics = IngressMetrics()
        self.drawn: Drawn | None = None
        limits = {Role.REGISTERED: Limit(tokens, 60), Role.ANONYMOUS: Limit(2, 60)}
        self.gate = RateGate(
            self.buckets, writes=limits, reads={}, metrics=self.metrics, monotonic=self.clock.monotonic
        )

    async def call(self, principal: Principal = ANN, *, write: bool = True, address: str = "a") -> None:
        await self.gate.admit(principal, write=write, address=address, keep=self.keep)

    def keep(self, drawn: Drawn) -> None:
        self.drawn = drawn

    @property
    def fields(self) -> dict[bytes, bytes]:
        """The RateLimit fields of the last call's answer."""
        return dict(self.drawn.fields) if self.drawn else {}

    async def answer(self, status: int) -> None:
        """The last call is answered."""
        assert self.drawn is not None
        await self.drawn.settle(status)

    async def count(self, principal: Principal = ANN, address: str = "a") -> int:
        """How many calls pass before one is refused."""
        for passed in range(100):
            try:
                await self.call(principal, address=address)
            except ProblemError:
                return passed
        raise AssertionError


async def test_a_call_returns_what_is_left() -> None:
    world = World()

    await world.call()

    assert world.fields == {b"ratelimit-policy": b'"writes";q=8;w=60', b"ratelimit": b'"writes";r=7;t=8'}


async def test_a_limited_call_is_a_counted_429_with_retry_after() -> None:
    world = World()
    assert await world.count() == 8

    with pytest.raises(ProblemError) as refused:
        await world.call()

    assert refused.value.status_code == 429
    assert (refused.value.headers or {})["Retry-After"] == "15"
    assert world.fields[b"ratelimit"] == b'"writes";r=0;t=60'
    count = world.metrics.registry.get_sample_value("ingress_refusals_total", {"reason": "rate", "role": "registered"})
    assert count == 2


async def test_the_call_passes_after_retry_after() -> None:
    world = World()
    await world.count()

    world.clock.advance(8)

    await world.call()


async def test_others_have_buckets_of_their_own() -> None:
    world = World()
    await world.count()

    assert await world.count(BEN) == 8


async def test_guests_are_limited_by_address() -> None:
    world = World()
    one, two = (Principal("t", "p", name, frozenset({Role.ANONYMOUS})) for name in ("x", "y"))

    assert await world.count(one) == 2
    assert await world.count(two) == 0
    assert await world.count(two, address="b") == 2


async def test_unlimited_calls_pass_without_a_draw() -> None:
    world = World()

    await world.call(write=False)
    await world.call(Principal("t", "p", "boss", frozenset({Role.ADMIN})))

    assert world.buckets.asked == 0
    assert world.fields == {}


async def test_without_the_shared_buckets_a_fourth_passes_and_they_rest() -> None:
    world = World()
    world.buckets.down = True

    assert await world.count() == 2
    assert world.buckets.asked == 1
    assert world.fields[b"ratelimit-policy"] == b'"writes";q=2;w=60'


async def test_shared_buckets_are_used_again_after_an_outage() -> None:
    world = World()
    world.buckets.down = True
    await world.count()
    world.buckets.down = False

    world.clock.advance(2)

    assert await world.count() == 8


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize(("status", "left"), [(202, 6), (422, 6), (429, 7), (503, 7)])
async def test_a_retry_later_gives_the_token_back_and_shows_it(down: bool, status: int, left: int) -> None:
    world = World(tokens=32 if down else 8)
    world.buckets.down = down
    await world.call()

    await world.call()
    await world.answer(status)

    assert world.fields[b"ratelimit"] == f'"writes";r={left};t={15 if left == 6 else 8}'.encode()
    assert await world.count() == left


async def test_a_token_is_given_back_once() -> None:
    world = World()
    await world.call()
    await world.call()

    for _ in range(3):
        await world.answer(503)

    assert await world.count() == 7


async def test_a_refused_call_gives_no_token_back() -> None:
    world = World()
    await world.count()

    await world.answer(429)

    assert await world.count() == 0


async def test_a_client_that_only_gets_503_is_limited_too() -> None:
    world, passed = World(), 0

    with pytest.raises(ProblemError):
        while passed < 100:
            await world.call()
            await world.answer(503)
            passed += 1

    assert passed == 16


async def test_a_token_that_cannot_be_given_back_is_not_shown_as_left() -> None:
    world = World()
    await world.call()
    world.buckets.down = True

    await world.answer(503)

    assert world.fields[b"ratelimit"] == b'"writes";r=7;t=8'
    world.buckets.down = False
    world.clock.advance(1)
    assert await world.count() == 7


def test_no_name_reaches_into_another_key() -> None:
    assert hash_key("a", "b:c") != hash_key("a:b", "c") != hash_key("a", "b", "c")
    assert len(hash_key("x" * 10_000)) == 40


@pytest.mark.parametrize(
    ("method", "path", "write"),
    [
        ("GET", "/x", False),
        ("POST", "/x/messages", True),
        ("DELETE", "/x", True),
        ("POST", "/x/fetch", False),
        ("POST", "/bundles/{tenant}/{project}/{bundle_id}/embed-tickets", False),
        ("POST", "/embed/session", False),
    ],
)
def test_posts_that_only_read_are_no_writes(method: str, path: str, write: bool) -> None:
    assert is_write(method, path) is write
