"""Buckets that never run empty break the contract."""

import pytest

from everturn.limits.token_buckets import Draw, Limit
from everturn_testing.limits.token_buckets import MemoryTokenBuckets
from everturn_testing.limits.token_buckets_contract import TokenBucketsContract


class Endless(MemoryTokenBuckets):
    async def draw(self, key: str, limit: Limit) -> Draw:
        return Draw(True, 3, 0.0, 0.0)


async def test_buckets_without_an_end_are_noticed() -> None:
    with pytest.raises(AssertionError):
        await TokenBucketsContract().test_a_full_bucket_is_drawn_empty_and_then_refuses(Endless())
