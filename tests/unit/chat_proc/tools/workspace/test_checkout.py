"""react.checkout: the editable workspace of this turn."""

import json

import pytest
from pydantic import ValidationError

from chat_proc.tools.workspace import checkout as checkout_module
from chat_proc.tools.workspace.checkout import CheckoutParams, CheckoutTool
from chat_proc.workspace.local import fold_workspace
from everturn.files.model import ArtifactKind
from everturn_testing.files.stored_files import OWNER
from everturn_testing.timeline import build_file


@pytest.fixture
def tool(history, objects) -> CheckoutTool:
    return CheckoutTool(history, objects)


def paths_of(timeline) -> dict[str, str | None]:
    files = fold_workspace(timeline.blocks, "turn_2").files
    return {path: file.checked_out_from for path, file in files.items()}


async def test_replace_makes_the_sources_the_whole_workspace_and_says_what_went(play, stored, timeline, tool) -> None:
    stored.put("turn_1", "src/a.py", b"a")
    own = stored.put("turn_2", "old.py", b"old")
    timeline.result("call_0", "react.write", "ok", own)

    outcome = await play(tool, timeline, {"mode": "replace", "paths": ["fi:turn_1.files/"]})

    assert json.loads(outcome.text) == {
        "mode": "replace",
        "checked_out": [{"source": "fi:turn_1.files/", "files": 1}],
        "root": "turn_2/files/",
        "file_count": 1,
        "files": ["src/a.py"],
        "removed_count": 1,
        "removed": ["turn_2/files/old.py"],
    }
    assert paths_of(timeline) == {"turn_2/files/src/a.py": "fi:turn_1.files/src/a.py"}
    tree = await stored.artifacts.load_tree(OWNER, "conv_1", "fi:turn_2.files/")
    assert [artifact.ref for artifact in tree] == ["fi:turn_2.files/src/a.py"]


async def test_overlay_overwrites_and_deletes_nothing(play, stored, timeline, tool) -> None:
    stored.put("turn_1", "a.py", b"theirs")
    timeline.result(
        "call_0", "react.write", "ok", stored.put("turn_2", "a.py", b"mine"), stored.put("turn_2", "b", b"")
    )

    outcome = await play(tool, timeline, {"mode": "overlay", "paths": ["fi:turn_1.files/a.py"]})

    assert json.loads(outcome.text)["files"] == ["a.py", "b"]
    assert paths_of(timeline) == {"turn_2/files/b": None, "turn_2/files/a.py": "fi:turn_1.files/a.py"}


async def test_of_several_sources_the_later_one_wins(play, stored, timeline, tool) -> None:
    for turn, names in (("turn_0", ("a", "b")), ("turn_1", ("b", "c"))):
        for name in names:
            stored.put(turn, name, f"{turn}{name}".encode())

    await play(tool, timeline, {"paths": ["fi:turn_0.files/", "fi:turn_1.files/"]})

    assert paths_of(timeline) == {
        "turn_2/files/a": "fi:turn_0.files/a",
        "turn_2/files/b": "fi:turn_1.files/b",
        "turn_2/files/c": "fi:turn_1.files/c",
    }


async def test_the_old_way_to_name_a_version_replaces_by_the_whole_tree(play, stored, timeline, tool) -> None:
    stored.put("turn_1", "a", b"1")
    stored.put("turn_1", "b/c", b"2")
    stored.put("turn_1", "chart.png", b"3", kind=ArtifactKind.OUTPUT)

    await play(tool, timeline, {"version": "turn_1"})

    assert set(paths_of(timeline)) == {"turn_2/files/a", "turn_2/files/b/c"}


async def test_a_replacing_checkout_with_a_missing_source_changes_nothing(play, stored, timeline, tool) -> None:
    stored.put("turn_1", "a", b"1")
    timeline.result("call_0", "react.write", "ok", stored.put("turn_2", "mine", b"1"))

    outcome = await play(tool, timeline, {"paths": ["fi:turn_1.files/", "fi:turn_0.files/"]})

    assert outcome.status == "error"
    assert json.loads(outcome.text)["missing"] == ["fi:turn_0.files/"]
    assert paths_of(timeline) == {"turn_2/files/mine": None}


async def test_an_overlay_reports_missing_sources(play, stored, timeline, tool) -> None:
    stored.put("turn_1", "a", b"1")
    paths = ["fi:turn_1.files/a", "fi:turn_0.files/", "fi:turn_1.outputs/x.csv", "turn_1/files/a"]

    outcome = await play(tool, timeline, {"mode": "overlay", "paths": paths})

    result = json.loads(outcome.text)
    assert (outcome.status, result["missing"]) == ("ok", ["fi:turn_0.files/"])
    assert [item["path"] for item in result["invalid"]] == paths[2:]
    assert "only files/" in result["invalid"][0]["reason"]


async def test_a_path_that_would_be_a_file_and_a_folder_is_refused(play, stored, timeline, tool) -> None:
    stored.put("turn_0", "a", b"1")
    stored.put("turn_1", "a/b", b"2")

    outcome = await play(tool, timeline, {"paths": ["fi:turn_0.files/", "fi:turn_1.files/"]})

    assert outcome.status == "error"
    assert "a file and a folder" in outcome.text


async def test_a_workspace_beyond_its_limit_is_refused(play, stored, timeline, tool) -> None:
    for number in range(checkout_module.MAX_WORKSPACE_FILES + 1):
        stored.remember(build_file("turn_1", f"{number}", b"x", kind=ArtifactKind.FILE))

    outcome = await play(tool, timeline, {"paths": ["fi:turn_1.files/"]})

    assert outcome.status == "error"
    assert "at most 500 files" in outcome.text


async def test_the_copies_are_internal_files_of_this_turn(play, stored, timeline, tool) -> None:
    source = stored.put("turn_1", "a.py", b"a")

    outcome = await play(tool, timeline, {"paths": [source.ref]})

    (copy,) = outcome.records[0].body.artifacts
    assert (copy.ref, copy.path, copy.visibility) == ("fi:turn_2.files/a.py", "turn_2/files/a.py", "internal")
    assert (copy.sha256, copy.object_key) == (source.sha256, source.object_key)
    assert copy.id != source.id
    assert copy.rn.endswith(":conv_1:turn_2:file:a.py")


async def test_bytes_of_another_conversation_are_copied(play, stored, timeline, objects, tool) -> None:
    source = stored.put("turn_7", "a.py", b"a", conversation_id="conv_2")

    outcome = await play(tool, timeline, {"paths": ["fi:conv_2.turn_7.files/"]})

    (copy,) = outcome.records[0].body.artifacts
    assert copy.object_key == f"conv_1/{source.sha256}"
    assert objects.stored[copy.object_key] == b"a"
    assert outcome.records[0].body.sources == ("fi:conv_2.turn_7.files/a.py",)


async def test_a_call_that_is_repeated_makes_the_same_rows(call_tool, stored, timeline, tool) -> None:
    stored.put("turn_1", "a.py", b"a")

    first, second = [await call_tool(tool, timeline, {"paths": ["fi:turn_1.files/"]}) for _ in range(2)]

    assert first == second


@pytest.mark.parametrize(
    "params",
    [{}, {"mode": "merge", "paths": ["fi:turn_1.files/"]}, {"mode": "overlay", "version": "turn_1"}, {"paths": []}],
)
def test_a_checkout_that_says_nothing_or_two_things_is_refused(params) -> None:
    with pytest.raises(ValidationError):
        CheckoutParams.model_validate(params)
