"""The in-memory driver of MemorySearch, called through the port; the one of Postgres has its own tests."""

from everturn.memory.search import MAX_LIMIT, Scope, SnippetQuery
from everturn_testing.core import BEGINNING


def test_a_query_searches_all_targets_unless_it_names_some() -> None:
    query = SnippetQuery(Scope(), "x", BEGINNING, BEGINNING, BEGINNING)

    assert len(query.targets) == 5
    assert query.limit <= MAX_LIMIT == query.per_conversation
