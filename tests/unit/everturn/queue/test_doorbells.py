"""The drivers of Doorbells take the calls that are written for the port."""

import pytest

from everturn.queue.ports import Doorbells
from everturn.queue.redis import RedisDoorbells
from everturn_testing.port_shape import find_differences
from everturn_testing.queue.doorbells import MemoryDoorbells


@pytest.mark.parametrize("driver", [RedisDoorbells, MemoryDoorbells])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Doorbells, driver) == []
