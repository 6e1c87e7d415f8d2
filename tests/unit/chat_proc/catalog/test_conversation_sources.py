"""The drivers of Timelines give the sources of a conversation."""

import pytest

from chat_proc.catalog.tool import ConversationSources
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_testing.port_shape import find_differences
from everturn_testing.turns.timelines import MemoryTimelines


@pytest.mark.parametrize("driver", [PostgresTimelines, MemoryTimelines])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(ConversationSources, driver) == []
