"""A workspace completed from history."""

import pytest

from chat_proc.workspace.loading import Owner, WorkspaceHistory, load_target, load_workspace
from chat_proc.workspace.local import parse_target
from everturn.files.model import ArtifactKind
from everturn_testing.files.stored_files import OWNER, StoredFiles
from everturn_testing.timeline import TimelineBuilder

HERE = Owner(OWNER, "conv_1")


@pytest.fixture
def stored() -> StoredFiles:
    return StoredFiles()


@pytest.fixture
def history(stored: StoredFiles) -> WorkspaceHistory:
    return WorkspaceHistory(stored.artifacts)


async def test_files_below_pulled_roots_are_local_and_read_only(stored, history) -> None:
    stored.put("turn_1", "src/a.py", b"a")
    stored.put("turn_1", "src/b.py", b"b")
    stored.put("turn_1", "other.py", b"c")
    stored.put("turn_5", "x.csv", b"x", kind=ArtifactKind.OUTPUT, conversation_id="conv_2")
    timeline = TimelineBuilder()
    timeline.start_turn("turn_2", "Go")
    roots = [
        {"ref": "fi:turn_1.files/src/", "path": "turn_1/files/src/", "size": 2, "file_count": 2},
        {"ref": "fi:conv_2.turn_5.outputs/x.csv", "path": "conv_2/turn_5/outputs/x.csv", "size": 1},
    ]
    timeline.result("call_1", "react.pull", "ok", data={"pulled": roots})

    workspace = await load_workspace(history, HERE, timeline.blocks, timeline.turn_id)

    assert {path: (file.ref, file.origin) for path, file in workspace.files.items()} == {
        "turn_1/files/src/a.py": ("fi:turn_1.files/src/a.py", "pulled"),
        "turn_1/files/src/b.py": ("fi:turn_1.files/src/b.py", "pulled"),
        "conv_2/turn_5/outputs/x.csv": ("fi:conv_2.turn_5.outputs/x.csv", "pulled"),
    }


async def test_a_turn_whose_first_blocks_were_summarized_has_its_files_from_rows(stored, history) -> None:
    stored.put("turn_2", "early.py", b"1")
    stored.put("turn_2", "sales.csv", b"2", kind=ArtifactKind.ATTACHMENT)
    late = stored.put("turn_2", "late.py", b"3")
    timeline = TimelineBuilder()
    timeline.start_turn("turn_2", "Go")
    timeline.result("call_1", "react.write", "ok", late)

    workspace = await load_workspace(history, HERE, timeline.blocks[-1:], timeline.turn_id)

    assert {path: file.origin for path, file in workspace.files.items()} == {
        "turn_2/files/early.py": "own",
        "turn_2/files/late.py": "own",
        "turn_2/attachments/sales.csv": "attached",
    }


async def test_a_file_takes_precedence_over_a_folder_of_its_name(stored, history) -> None:
    exact = stored.put("turn_1", "a", b"a")
    inside = stored.put("turn_1", "b/c", b"c")

    for text, found in (("a", (exact,)), ("b", (inside,)), ("none", None)):
        wish = parse_target(f"fi:turn_1.files/{text}", "conv_1")
        assert await load_target(history, HERE, wish, max_files=9) == found
