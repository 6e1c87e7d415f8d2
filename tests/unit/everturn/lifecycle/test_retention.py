"""The port of retention has the driver's shape."""

from everturn.lifecycle.erasure import Retention
from everturn.lifecycle.postgres_erasure import PostgresRetention
from everturn_testing.port_shape import find_differences


def test_the_driver_has_the_shape_of_the_port() -> None:
    assert find_differences(Retention, PostgresRetention) == []
