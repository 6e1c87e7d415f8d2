import json

from chat_proc.tools.memory.user_memories import render_memories
from everturn_testing.memory.user_memories_contract import remembered


def test_each_memory_is_one_line_with_what_memory_write_takes() -> None:
    first, second = render_memories([remembered("Line\nbreak"), remembered("b", pinned=True)]).splitlines()

    assert set(json.loads(first)) == {"memory_id", "text", "labels", "pinned", "confidence", "salience", "updated"}
    assert json.loads(second)["pinned"] is True
