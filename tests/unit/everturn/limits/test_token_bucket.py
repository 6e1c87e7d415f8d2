"""Token buckets as arithmetic: retry times are reliable, and limits are parsed strictly."""

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core.identity import Role
from everturn.limits.token_buckets import (
    SECOND_US,
    BadLimits,
    BucketState,
    Limit,
    draw_token,
    parse_limits,
    return_token,
)

LIMIT = Limit(4, 60)


def test_tokens_come_back_evenly() -> None:
    state = BucketState()
    for _ in range(4):
        state, _ = draw_token(state, LIMIT, SECOND_US)

    before = draw_token(state, LIMIT, 16 * SECOND_US - 1)[1]
    after = draw_token(state, LIMIT, 16 * SECOND_US)[1]

    assert (before.taken, after.taken) == (False, True)


def test_a_clock_going_back_adds_no_tokens() -> None:
    state = BucketState()
    for _ in range(4):
        state, _ = draw_token(state, LIMIT, 1000 * SECOND_US)

    assert not draw_token(state, LIMIT, 10 * SECOND_US)[1].taken


@given(
    st.integers(1, 200),
    st.sampled_from([1, 60, 3600]),
    st.lists(st.integers(0, 20 * SECOND_US), min_size=1, max_size=80),
)
def test_no_window_ever_passes_more_than_two_buckets(tokens: int, window_s: int, gaps: list[int]) -> None:
    limit, state, now, taken = Limit(tokens, window_s), BucketState(), 0, list[int]()

    for gap in gaps:
        now += gap
        state, draw = draw_token(state, limit, now)
        if draw.taken:
            taken.append(now)
        assert 0 <= draw.wait_s <= limit.window_us / SECOND_US
        assert 0 <= draw.left < limit.tokens

    for first in taken:
        assert sum(first <= at < first + limit.window_us for at in taken) <= 2 * limit.tokens


@given(
    st.integers(1, 50),
    st.sampled_from([1, 60, 3600]),
    st.lists(st.tuples(st.integers(0, 20 * SECOND_US), st.booleans()), min_size=1, max_size=120),
)
def test_returned_tokens_are_limited(tokens: int, window_s: int, calls: list[tuple[int, bool]]) -> None:
    limit, state, now, passed, kept = Limit(tokens, window_s), BucketState(), 0, list[int](), list[int]()

    for gap, refused in calls:
        now += gap
        state, draw = draw_token(state, limit, now)
        if draw.taken:
            passed.append(now)
        if draw.taken and refused:
            state, level = return_token(state, limit, now)
            assert level.left in {draw.left, draw.left + 1}
            assert level.left <= limit.tokens
            assert 0 <= level.full_s <= draw.full_s
        elif draw.taken:
            kept.append(now)

    for times, most in ((kept, 2), (passed, 4)):
        for first in times:
            assert sum(first <= at < first + limit.window_us for at in times) <= most * limit.tokens


@pytest.mark.parametrize("seed", range(5))
def test_at_least_95_of_100_callers_are_admitted_at_their_retry_time(seed: int) -> None:
    limit, state, rng = Limit(60, 60), BucketState(), random.Random(seed)
    # 100 calls within a second; each refused one returns at its retry time, in whole seconds.
    calls = [(rng.randrange(SECOND_US), False) for _ in range(100)]
    heapq.heapify(calls)
    returned = admitted = 0

    while calls:
        now, again = heapq.heappop(calls)
        state, draw = draw_token(state, limit, now)
        returned += again
        admitted += again and draw.taken
        if not draw.taken:
            heapq.heappush(calls, (now + -int(-draw.wait_s // 1) * SECOND_US, True))

    assert returned >= 40
    assert admitted >= 0.95 * returned


def test_given_limits_replace_the_defaults_of_their_roles() -> None:
    defaults = {Role.REGISTERED: Limit(60, 60), Role.PAID: Limit(1, 1), Role.ADMIN: Limit(2, 1)}

    limits = parse_limits("registered=5/h, paid=off", defaults)

    assert limits == {Role.REGISTERED: Limit(5, 3600), Role.ADMIN: Limit(2, 1)}
    assert parse_limits("off", defaults) == {}
    assert parse_limits("", defaults) == defaults


@pytest.mark.parametrize("text", ["guest=1/s", "paid", "paid=1", "paid=0/s", "paid=-1/s", "paid=9999999/s", "paid=1/d"])
def test_limits_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(BadLimits):
        parse_limits(text, {})
