"""The drivers of Leases take the calls that are written for the port."""

import pytest

from everturn.testing.port_shape import find_differences
from everturn.testing.turns.leases import MemoryLeases
from everturn.turns.ports import Leases
from everturn.turns.postgres_leases import PostgresLeases


@pytest.mark.parametrize("driver", [PostgresLeases, MemoryLeases])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Leases, driver) == []
