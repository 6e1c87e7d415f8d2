"""The driver of ObjectRows takes the calls that are written for the port."""

from everturn.ports.life.object_rows import ObjectRows
from everturn.postgres.life.object_rows import PostgresObjectRows
from everturn.testing.port_shape import find_differences


def test_the_driver_takes_the_ports_calls() -> None:
    assert find_differences(ObjectRows, PostgresObjectRows) == []
