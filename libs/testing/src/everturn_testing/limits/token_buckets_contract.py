"""The contract of TokenBuckets as tests; a subclass or its module defines the fixture `buckets`."""

import asyncio

import pytest

from everturn.limits.token_buckets import Limit, TokenBuckets

_HOUR = Limit(4, 3600)
_SLACK_S = 30.0
"""The longest time between two draws of a test."""


class TokenBucketsContract:
    """Required of every TokenBuckets."""

    async def test_a_full_bucket_is_drawn_empty_and_then_refuses(self, buckets: TokenBuckets) -> None:
        draws = [await buckets.draw("a", _HOUR) for _ in range(5)]

        assert [draw.taken for draw in draws] == [True] * 4 + [False]
        assert [draw.left for draw in draws] == [3, 2, 1, 0, 0]
        assert [draw.wait_s for draw in draws[:4]] == [0.0] * 4
        assert draws[3].full_s == pytest.approx(3600, abs=_SLACK_S)

    async def test_refused_callers_get_successive_retry_times(self, buckets: TokenBuckets) -> None:
        for _ in range(4):
            await buckets.draw("a", _HOUR)

        waits = [(await buckets.draw("a", _HOUR)).wait_s for _ in range(3)]

        assert waits == pytest.approx([900, 1800, 2700], abs=_SLACK_S)

    async def test_no_retry_time_is_longer_than_the_window(self, buckets: TokenBuckets) -> None:
        waits = [(await buckets.draw("a", _HOUR)).wait_s for _ in range(20)]

        assert max(waits) <= 3600

    async def test_each_key_has_a_bucket_of_its_own(self, buckets: TokenBuckets) -> None:
        for _ in range(5):
            await buckets.draw("a", _HOUR)

        assert (await buckets.draw("b", _HOUR)).left == 3

    async def test_a_token_is_available_at_the_retry_time(self, buckets: TokenBuckets) -> None:
        limit = Limit(5, 1)
        refused = None
        while refused is None:
            draw = await buckets.draw("a", limit)
            refused = None if draw.taken else draw

        await asyncio.sleep(refused.wait_s + 0.01)

        assert (await buckets.draw("a", limit)).taken

    async def test_a_returned_token_can_be_drawn_again(self, buckets: TokenBuckets) -> None:
        for _ in range(4):
            await buckets.draw("a", _HOUR)

        level = await buckets.give_back("a", _HOUR)

        assert level.left == 1
        assert level.full_s == pytest.approx(2700, abs=_SLACK_S)
        assert [(await buckets.draw("a", _HOUR)).taken for _ in range(2)] == [True, False]

    async def test_a_full_bucket_accepts_no_returned_token(self, buckets: TokenBuckets) -> None:
        await buckets.draw("a", _HOUR)

        levels = [await buckets.give_back("a", _HOUR) for _ in range(3)]

        assert [level.left for level in levels] == [4, 4, 4]
        assert (await buckets.draw("a", _HOUR)).left == 3

    async def test_returned_tokens_within_a_window_are_limited(self, buckets: TokenBuckets) -> None:
        passed = 0
        while (await buckets.draw("a", _HOUR)).taken:
            await buckets.give_back("a", _HOUR)
            passed += 1

        assert passed == 8

    async def test_concurrently_returned_tokens_can_be_drawn_again(self, buckets: TokenBuckets) -> None:
        for _ in range(4):
            await buckets.draw("a", _HOUR)

        levels = await asyncio.gather(*(buckets.give_back("a", _HOUR) for _ in range(3)))

        assert sorted(level.left for level in levels) == [1, 2, 3]

    async def test_concurrent_draws_get_no_more_than_the_tokens(self, buckets: TokenBuckets) -> None:
        draws = await asyncio.gather(*(buckets.draw("a", Limit(4, 3600)) for _ in range(12)))

        assert [draw.taken for draw in draws].count(True) == 4
