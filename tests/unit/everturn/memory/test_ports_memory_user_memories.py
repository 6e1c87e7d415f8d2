"""The in-memory driver of UserMemories takes the calls that are written for the port."""

from everturn.memory.user_memories import MemoryBook, UserMemories
from everturn_testing.memory.user_memories import MemoryUserMemories
from everturn_testing.port_shape import find_differences


def test_the_driver_takes_the_ports_calls() -> None:
    assert find_differences(UserMemories, MemoryUserMemories) == []
    assert find_differences(MemoryBook, MemoryUserMemories) == []
