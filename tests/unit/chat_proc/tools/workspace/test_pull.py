"""react.pull: files of earlier turns, read-only."""

import json

import pytest

from chat_proc.tools.workspace import checkout as pull_module
from chat_proc.tools.workspace.checkout import PullTool
from chat_proc.workspace.local import fold_workspace
from everturn.files.model import ArtifactKind
from everturn_testing.timeline import build_file


@pytest.fixture
def tool(history) -> PullTool:
    return PullTool(history)


async def test_a_folder_of_files_is_pulled_with_its_names_and_size(play, stored, timeline, tool) -> None:
    for name in ("src/a.py", "src/b.py", "other.py"):
        stored.put("turn_1", name, b"12")

    outcome = await play(tool, timeline, {"paths": ["fi:turn_1.files/src/"]})

    assert outcome.status == "ok"
    assert json.loads(outcome.text) == {
        "requested": ["fi:turn_1.files/src/"],
        "pulled": [
            {
                "ref": "fi:turn_1.files/src/",
                "path": "turn_1/files/src/",
                "file_count": 2,
                "size": 4,
                "files": ["a.py", "b.py"],
            }
        ],
    }
    assert outcome.artifacts == ()


async def test_outputs_and_attachments_are_pulled_by_their_exact_refs(play, stored, timeline, tool) -> None:
    stored.put("turn_1", "report.csv", b"123", kind=ArtifactKind.OUTPUT)
    stored.put("turn_1", "sales.xlsx", b"12", kind=ArtifactKind.ATTACHMENT)
    refs = ["fi:turn_1.outputs/report.csv", "fi:turn_1.user.attachments/sales.xlsx"]

    outcome = await play(tool, timeline, {"paths": [*refs, "fi:turn_1.outputs/"]})

    assert [(item["ref"], item["path"], item["size"]) for item in outcome.data["pulled"]] == [
        (refs[0], "turn_1/outputs/report.csv", 3),
        (refs[1], "turn_1/attachments/sales.xlsx", 2),
    ]
    assert "one by one" in outcome.data["invalid"][0]["reason"]


async def test_a_name_without_a_slash_is_the_file_or_else_the_folder(play, stored, timeline, tool) -> None:
    stored.put("turn_1", "src/a.py", b"1")

    outcome = await play(tool, timeline, {"paths": ["fi:turn_1.files/src"]})

    assert outcome.data["pulled"][0]["ref"] == "fi:turn_1.files/src/"


async def test_missing_and_invalid_refs_are_reported(play, stored, timeline, tool) -> None:
    stored.put("turn_1", "a.py", b"1")
    paths = ["fi:turn_1.files/a.py", "fi:turn_1.files/none.py", "turn_1/files/a.py", "ar:turn_1.user.prompt"]

    outcome = await play(tool, timeline, {"paths": paths})

    assert outcome.status == "ok"
    assert outcome.data["missing"] == ["fi:turn_1.files/none.py"]
    assert [item["path"] for item in outcome.data["invalid"]] == paths[2:]
    assert "did you mean fi:turn_1.files/a.py" in outcome.data["invalid"][0]["reason"]


async def test_nothing_pulled_at_all_is_an_error(play, timeline, tool) -> None:
    outcome = await play(tool, timeline, {"paths": ["fi:turn_1.files/none"]})

    assert outcome.status == "error"


async def test_what_this_turn_has_is_not_pulled_again(play, stored, timeline, tool) -> None:
    stored.put("turn_1", "a.py", b"1")
    timeline.result("call_0", "react.write", "ok", build_file("turn_2", "b.py", b"1", kind=ArtifactKind.FILE))
    await play(tool, timeline, {"paths": ["fi:turn_1.files/a.py", "fi:turn_1.files/"]})

    again = ["fi:turn_1.files/a.py", "fi:turn_1.files/", "fi:turn_2.files/b.py"]
    outcome = await play(tool, timeline, {"paths": again})

    assert (outcome.data["pulled"], outcome.data["already_local"]) == ([], again)


async def test_a_file_of_another_conversation_is_below_its_folder(play, stored, timeline, tool) -> None:
    stored.put("turn_7", "a.py", b"1", conversation_id="conv_2")

    outcome = await play(tool, timeline, {"paths": ["fi:conv_2.turn_7.files/a.py", "fi:conv_2.turn_7.files/"]})

    assert [(item["ref"], item["path"]) for item in outcome.data["pulled"]] == [
        ("fi:conv_2.turn_7.files/a.py", "conv_2/turn_7/files/a.py"),
        ("fi:conv_2.turn_7.files/", "conv_2/turn_7/files/"),
    ]


async def test_more_than_a_turn_may_pull_is_refused_whole(play, stored, timeline, tool) -> None:
    for number in range(pull_module.MAX_PULL_FILES - 1):
        stored.put("turn_1", f"many/{number:03d}", b"x")
    for number in range(3):
        stored.put("turn_1", f"few/{number}", b"x")

    outcome = await play(tool, timeline, {"paths": ["fi:turn_1.files/many/", "fi:turn_1.files/few/"]})

    assert [item["ref"] for item in outcome.data["pulled"]] == ["fi:turn_1.files/many/"]
    assert outcome.data["pulled"][0]["files_not_listed"] == pull_module.MAX_PULL_FILES - 1 - pull_module.SHOWN_FILES
    assert "it has 3 files" in outcome.data["invalid"][0]["reason"]
    later = await play(tool, timeline, {"paths": ["fi:turn_1.files/"]})
    assert "more than 500" in later.data["invalid"][0]["reason"]


async def test_bytes_are_bounded_over_the_whole_turn(play, stored, timeline, tool) -> None:
    for name in ("a", "b"):
        big = build_file("turn_1", name, name.encode(), kind=ArtifactKind.FILE)
        stored.remember(big.model_copy(update={"size": pull_module.MAX_PULL_BYTES // 2 + 1}))
    await play(tool, timeline, {"paths": ["fi:turn_1.files/a"]})

    outcome = await play(tool, timeline, {"paths": ["fi:turn_1.files/b"]})

    assert outcome.status == "error"
    assert fold_workspace(timeline.blocks, "turn_2").pulled_bytes == pull_module.MAX_PULL_BYTES // 2 + 1


async def test_a_file_that_was_removed_from_a_tree_is_pulled_by_its_own_ref_only(play, stored, timeline, tool) -> None:
    gone = stored.put("turn_1", "gone.py", b"1")
    stored.put("turn_1", "kept.py", b"1")
    stored.remember(gone.model_copy(update={"removed": True}))

    outcome = await play(tool, timeline, {"paths": ["fi:turn_1.files/", "fi:turn_1.files/gone.py"]})

    assert outcome.data["pulled"][0]["files"] == ["kept.py"]
    assert outcome.data["pulled"][1]["ref"] == gone.ref
