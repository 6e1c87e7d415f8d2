"""The drivers of Sweeps take the calls that are written for the port."""

import pytest

from everturn.turns.ports import Sweeps
from everturn.turns.postgres_leases import PostgresSweeps
from everturn_testing.port_shape import find_differences


@pytest.mark.parametrize("driver", [PostgresSweeps])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Sweeps, driver) == []
