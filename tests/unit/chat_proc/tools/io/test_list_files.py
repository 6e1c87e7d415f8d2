"""Which files a program can have."""

from chat_proc.tools.io import ListFilesTool
from chat_proc.workspace.loading import WorkspaceHistory


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
