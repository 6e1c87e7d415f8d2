"""The port of exports has the driver's shape."""

from everturn.lifecycle.exports import Exports, Section
from everturn.lifecycle.postgres_exports import PostgresExports
from everturn_testing.port_shape import find_differences


def test_the_driver_has_the_shape_of_the_port() -> None:
    assert find_differences(Exports, PostgresExports) == []


def test_sections_come_in_one_order() -> None:
    assert [section.value for section in Section] == ["artifacts", "signals", "feedback"]
