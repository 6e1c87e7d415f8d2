"""The drivers of Turns take the calls that are written for the port."""

import pytest

from everturn.turns.ports import Turns
from everturn.turns.postgres_reading import PostgresTurns
from everturn_testing.port_shape import find_differences


@pytest.mark.parametrize("driver", [PostgresTurns])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Turns, driver) == []
