"""Listing and reading files, and reporting progress, in a turn with one attached file."""

import pytest

from chat_proc.tools.context.resolve import ReadPorts
from chat_proc.tools.io import ListFilesTool, ReadFileTool, ShowProgressTool
from chat_proc.workspace.loading import WorkspaceHistory
from everturn_testing.timeline import TimelineBuilder, build_file
from everturn_testing.turns.live_turn import RecordingTurn

CSV = b"a,b\n1,2\n"


@pytest.fixture
def timeline(objects) -> TimelineBuilder:
    csv = build_file("turn_1", "sales.csv", CSV, mime="text/csv")
    objects.stored[csv.object_key] = CSV
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Chart it", csv)
    return timeline


async def test_files_are_listed_with_paths_and_refs(call_tool, timeline, stored) -> None:
    outcome = await call_tool(ListFilesTool(WorkspaceHistory(stored.artifacts)), timeline, {})

    assert outcome.value == [
        {
            "path": "turn_1/attachments/sales.csv",
            "ref": "fi:turn_1.user.attachments/sales.csv",
            "size": 8,
            "mime": "text/csv",
        }
    ]


async def test_a_folder_narrows_the_list(call_tool, timeline, stored) -> None:
    tool = ListFilesTool(WorkspaceHistory(stored.artifacts))

    assert (await call_tool(tool, timeline, {"folder": "outputs/"})).value == []
    assert (await call_tool(tool, timeline, {"folder": "../etc"})).status == "error"


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


async def test_clients_are_notified_at_once(call_tool) -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello")

    await call_tool(ShowProgressTool(), timeline, {"text": "Half is read."}, live=(live := RecordingTurn()))

    assert live.tool_events == [("progress", "Half is read.")]
