"""The drivers of WaitingRooms take the calls that are written for the port."""

import pytest

from everturn.limits.redis import RedisWaitingRooms
from everturn.limits.waiting_rooms import WaitingRooms
from everturn_testing.limits.waiting_rooms import MemoryWaitingRooms
from everturn_testing.port_shape import find_differences


@pytest.mark.parametrize("driver", [RedisWaitingRooms, MemoryWaitingRooms])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(WaitingRooms, driver) == []
