"""react.search_files: a listing without contents."""

import json

import pytest

from chat_proc.tools.workspace import search as search_module
from chat_proc.tools.workspace.checkout import CheckoutTool, PullTool
from chat_proc.tools.workspace.search import SearchFilesTool
from everturn.files.model import ArtifactKind
from everturn_testing.timeline import build_file


@pytest.fixture
def tool(history) -> SearchFilesTool:
    return SearchFilesTool(history)


async def test_everything_local_is_listed_with_sizes_refs_and_where_it_came_from(
    play, stored, history, objects, timeline, tool
) -> None:
    stored.put("turn_1", "a.py", b"1")
    stored.put("turn_0", "b.csv", b"22", kind=ArtifactKind.OUTPUT)
    await play(CheckoutTool(history, objects), timeline, {"paths": ["fi:turn_1.files/"]})
    await play(PullTool(history), timeline, {"paths": ["fi:turn_0.outputs/b.csv"]})
    objects.stored.clear()

    result = json.loads((await play(tool, timeline, {})).text)

    assert (result["file_count"], result["total_bytes"]) == (2, 3)
    assert result["files"] == [
        {
            "path": "turn_0/outputs/b.csv",
            "logical_path": "fi:turn_0.outputs/b.csv",
            "size_bytes": 2,
            "mime": "text/plain",
            "read_only": "pulled",
        },
        {
            "path": "turn_2/files/a.py",
            "logical_path": "fi:turn_2.files/a.py",
            "size_bytes": 1,
            "mime": "text/plain",
            "checked_out_from": "fi:turn_1.files/a.py",
            "modified": False,
        },
    ]


async def test_a_prefix_and_a_name_narrow_the_listing(play, timeline, tool) -> None:
    for name in ("src/a.py", "src/b.md", "c.py"):
        timeline.result("call_0", "react.write", "ok", build_file("turn_2", name, b"x", kind=ArtifactKind.FILE))

    result = json.loads((await play(tool, timeline, {"prefix": "files/src/", "name_regex": r"\.py$"})).text)

    assert [file["path"] for file in result["files"]] == ["turn_2/files/src/a.py"]


async def test_a_cut_listing_is_reported(play, timeline, tool) -> None:
    many = [
        build_file("turn_2", f"{n:04d}", b"x", kind=ArtifactKind.OUTPUT) for n in range(search_module.MAX_LISTED + 2)
    ]
    timeline.result("call_0", "exec_tools.execute_code_python", "ok", *many)

    result = json.loads((await play(tool, timeline, {})).text)

    assert (result["file_count"], len(result["files"])) == (502, 500)
    assert "500 of 502" in result["notices"][0]


@pytest.mark.parametrize("params", [{"name_regex": "("}, {"prefix": "../"}])
async def test_invalid_search_parameters_are_an_error(play, timeline, tool, params) -> None:
    outcome = await play(tool, timeline, params)

    assert (outcome.status, bool(json.loads(outcome.text)["error"])) == ("error", True)
