"""The drivers of Queue take the calls that are written for the port."""

import pytest

from everturn.queue.ports import Queue
from everturn.queue.postgres import PostgresQueue
from everturn_testing.port_shape import find_differences
from everturn_testing.queue.memory_queue import MemoryQueue


@pytest.mark.parametrize("driver", [PostgresQueue, MemoryQueue])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Queue, driver) == []
