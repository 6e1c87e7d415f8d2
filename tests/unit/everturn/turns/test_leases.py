"""The drivers of Leases take the calls that are written for the port."""

import pytest

from everturn.turns.ports import Leases
from everturn.turns.postgres_leases import PostgresLeases
from everturn_testing.port_shape import find_differences
from everturn_testing.turns.leases import MemoryLeases


@pytest.mark.parametrize("driver", [PostgresLeases, MemoryLeases])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Leases, driver) == []
