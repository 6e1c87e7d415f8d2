"""The drivers of ConversationReader take the calls that are written for the port."""

import pytest

from everturn.memory.postgres_search import PostgresConversationReader
from everturn.memory.search import ConversationReader
from everturn_testing.memory.conversation_reader import MemoryConversationReader
from everturn_testing.port_shape import find_differences


@pytest.mark.parametrize("driver", [PostgresConversationReader, MemoryConversationReader])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(ConversationReader, driver) == []
