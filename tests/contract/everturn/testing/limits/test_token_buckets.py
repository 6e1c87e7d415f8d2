"""The buckets in memory keep the contract that Redis keeps, and can be down."""

import pytest

from everturn.core.errors import Unavailable
from everturn.limits.token_buckets import Limit
from everturn_testing.limits.token_buckets import MemoryTokenBuckets
from everturn_testing.limits.token_buckets_contract import TokenBucketsContract


class TestMemoryTokenBuckets(TokenBucketsContract):
    @pytest.fixture
    def buckets(self) -> MemoryTokenBuckets:
        return MemoryTokenBuckets()


async def test_while_down_nothing_is_drawn() -> None:
    buckets = MemoryTokenBuckets()
    buckets.down = True

    with pytest.raises(Unavailable):
        await buckets.draw("a", Limit(1, 1))
