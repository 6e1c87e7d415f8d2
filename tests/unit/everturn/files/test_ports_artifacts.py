"""The drivers of Artifacts take the calls that are written for the port."""

import pytest

from everturn.files.ports import Artifacts
from everturn.files.postgres import PostgresArtifacts
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.port_shape import find_differences


@pytest.mark.parametrize("driver", [PostgresArtifacts, MemoryArtifacts])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Artifacts, driver) == []
