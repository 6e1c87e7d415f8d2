"""The in-memory driver of SnippetIndex takes the calls that are written for the port; Postgres' is tested beside it."""

from everturn.memory.search import SnippetIndex
from everturn_testing.memory.snippets import MemorySnippets
from everturn_testing.port_shape import find_differences


def test_the_driver_takes_the_ports_calls() -> None:
    assert find_differences(SnippetIndex, MemorySnippets) == []
