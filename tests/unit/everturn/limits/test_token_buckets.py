"""The drivers of TokenBuckets take the calls that are written for the port."""

import pytest

from everturn.limits.redis import RedisTokenBuckets
from everturn.limits.token_buckets import TokenBuckets
from everturn_testing.limits.token_buckets import MemoryTokenBuckets
from everturn_testing.port_shape import find_differences


@pytest.mark.parametrize("driver", [RedisTokenBuckets, MemoryTokenBuckets])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(TokenBuckets, driver) == []
