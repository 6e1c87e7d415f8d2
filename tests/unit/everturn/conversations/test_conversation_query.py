"""A list without wishes is the newest fifty that are not archived."""

from everturn.conversations.model import ConversationQuery


def test_a_query_with_defaults() -> None:
    query = ConversationQuery()

    assert (query.limit, query.cursor, query.search, query.state, query.archived) == (50, None, None, None, False)
