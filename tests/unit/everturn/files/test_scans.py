"""The drivers of Scans take the calls that are written for the port."""

from everturn.files.ports import Scans
from everturn.files.postgres import PostgresScans
from everturn_testing.files.scans import MemoryScans
from everturn_testing.port_shape import find_differences


def test_the_drivers_take_the_ports_calls() -> None:
    assert find_differences(Scans, PostgresScans) == []
    assert find_differences(Scans, MemoryScans) == []
