"""The drivers of Turns take the calls that are written for the port."""

import pytest

from everturn.testing.port_shape import find_differences
from everturn.turns.ports import Turns
from everturn.turns.postgres_reading import PostgresTurns


@pytest.mark.parametrize("driver", [PostgresTurns])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Turns, driver) == []
