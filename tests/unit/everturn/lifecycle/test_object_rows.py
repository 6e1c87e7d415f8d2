"""The driver of ObjectRows takes the calls that are written for the port."""

from everturn.lifecycle.orphans import ObjectRows
from everturn.lifecycle.postgres_erasure import PostgresObjectRows
from everturn_testing.port_shape import find_differences


def test_the_driver_takes_the_ports_calls() -> None:
    assert find_differences(ObjectRows, PostgresObjectRows) == []
