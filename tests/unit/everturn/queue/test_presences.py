"""The drivers of Presences take the calls that are written for the port."""

import pytest

from everturn.queue.ports import Presences
from everturn.queue.redis import RedisPresences
from everturn_testing.port_shape import find_differences
from everturn_testing.queue.presences import MemoryPresences


@pytest.mark.parametrize("driver", [RedisPresences, MemoryPresences])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Presences, driver) == []
