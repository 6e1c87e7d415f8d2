"""The bytes of a stored file, a part at a time."""

import pytest

from chat_proc.tools.context.resolve import ReadPorts
from chat_proc.tools.io import ReadFileTool


@pytest.fixture
def tool(objects, tool_ports) -> ReadFileTool:
    return ReadFileTool(objects, ReadPorts(tool_ports.artifacts, tool_ports.reader, tool_ports.sources))


@pytest.mark.parametrize(
    ("part", "data", "next_offset"),
    [
        ({}, b"a,b\n1,2\n", None),
        ({"max_bytes": 3}, b"a,b", 3),
        ({"offset": 4, "max_bytes": 100}, b"1,2\n", None),
        ({"offset": 100}, b"", None),
    ],
)
async def test_a_part_is_returned_with_the_next_offset(call_tool, timeline, tool, part, data, next_offset) -> None:
    outcome = await call_tool(tool, timeline, {"ref": "turn_1/attachments/sales.csv"} | part)

    assert (outcome.value["data"], outcome.value["next_offset"], outcome.value["size"]) == (data, next_offset, 8)


@pytest.mark.parametrize("ref", ["fi:turn_1.files/nothing.csv", "ar:turn_1.user.prompt", "nonsense"])
async def test_a_ref_that_is_not_a_file_is_an_error(call_tool, timeline, tool, ref) -> None:
    assert (await call_tool(tool, timeline, {"ref": ref})).status == "error"
