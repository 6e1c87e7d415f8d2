"""A list without wishes is the newest fifty that are not archived."""

import pytest

from everturn.conversations.model import ConversationQuery, Conversations
from everturn.conversations.postgres import PostgresConversations
from everturn_testing.port_shape import find_differences


def test_a_query_without_wishes() -> None:
    query = ConversationQuery()

    assert (query.limit, query.cursor, query.search, query.state, query.archived) == (50, None, None, None, False)


@pytest.mark.parametrize(("port", "driver"), [(Conversations, PostgresConversations)])
def test_a_driver_takes_the_ports_calls(port: type, driver: type) -> None:
    assert find_differences(port, driver) == []
