"""The drivers of Approvals take the calls that are written for the port."""

import pytest

from everturn.turns.ports import Approvals
from everturn.turns.postgres_approvals import PostgresApprovals
from everturn_testing.port_shape import find_differences
from everturn_testing.turns.approvals import MemoryApprovals


@pytest.mark.parametrize("driver", [PostgresApprovals, MemoryApprovals])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Approvals, driver) == []
