"""The errors of a commit say what the caller needs."""

import pytest

from everturn.core.errors import Conflict, OutOfOrder
from everturn.turns.ports import InboxMoved, Timelines
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_testing.port_shape import find_differences
from everturn_testing.turns.timelines import MemoryTimelines


def test_a_moved_inbox_says_where_it_is_now() -> None:
    error = InboxMoved(7)

    assert error.inbox_seq == 7
    assert "7" in str(error)


def test_both_are_conflicts() -> None:
    assert issubclass(InboxMoved, Conflict)
    assert issubclass(OutOfOrder, Conflict)


@pytest.mark.parametrize(("port", "driver"), [(Timelines, PostgresTimelines), (Timelines, MemoryTimelines)])
def test_a_driver_takes_the_ports_calls(port: type, driver: type) -> None:
    assert find_differences(port, driver) == []
