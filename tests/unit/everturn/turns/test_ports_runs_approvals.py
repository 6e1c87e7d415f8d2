"""The drivers of Approvals take the calls that are written for the port."""

import pytest

from everturn.testing.port_shape import find_differences
from everturn.testing.runs.approvals import MemoryApprovals
from everturn.turns.ports import Approvals
from everturn.turns.postgres_approvals import PostgresApprovals


@pytest.mark.parametrize("driver", [PostgresApprovals, MemoryApprovals])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Approvals, driver) == []
