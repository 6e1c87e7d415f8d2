"""react.patch: a diff or a whole text, onto a file of this turn."""

import json

import pytest

from chat_proc.tools.workspace.checkout import CheckoutTool
from chat_proc.tools.workspace.patch import PatchParams, PatchTool
from chat_proc.tools.workspace.write import WriteTool
from chat_proc.workspace.local import MAX_WRITTEN_BYTES
from everturn.files.model import ArtifactKind

APP = "def main():\n    return 1\n\n\nmain()\n"
CHANGE = "@@ -1,2 +1,2 @@\n def main():\n-    return 1\n+    return 2\n"


@pytest.fixture
def tool(history, objects) -> PatchTool:
    return PatchTool(history, objects)


@pytest.fixture
def put(stored, timeline):
    """A file of this turn, as a call wrote it."""

    def write(name: str, data: str | bytes, *, mime: str = "text/plain", kind=ArtifactKind.FILE, visibility="internal"):
        body = data.encode() if isinstance(data, str) else data
        artifact = stored.put("turn_2", name, body, kind=kind, mime=mime).model_copy(update={"visibility": visibility})
        timeline.result("call_0", "react.write", "ok", artifact)
        return artifact

    return write


def content(objects, outcome) -> str:
    return objects.stored[outcome.artifacts[0].object_key].decode()


def test_parameters_are_documented_in_the_order_path_patch_channel_kind() -> None:
    assert list(PatchParams.model_fields) == ["path", "patch", "channel", "kind"]


async def test_a_diff_changes_the_file_and_reports_the_changes(play, timeline, objects, tool, put) -> None:
    put("app.py", APP)

    outcome = await play(tool, timeline, {"path": "files/app.py", "patch": f"--- a/app.py\n+++ b/app.py\n{CHANGE}"})

    assert content(objects, outcome) == APP.replace("1", "2")
    assert json.loads(outcome.text) == {
        "path": "turn_2/files/app.py",
        "ok": True,
        "mode": "diff",
        "hunks": 1,
        "lines_added": 1,
        "lines_removed": 1,
        "line_count": 5,
        "size_bytes": len(APP),
    }
    (artifact,) = outcome.artifacts
    assert (artifact.ref, artifact.visibility) == ("fi:turn_2.files/app.py", "internal")


@pytest.mark.parametrize("path", ["files/app.py", "turn_2/files/app.py", "fi:turn_2.files/app.py", "app.py"])
async def test_a_path_may_be_given_in_every_way_that_names_this_turn(play, timeline, tool, put, path) -> None:
    put("app.py", APP)

    assert (await play(tool, timeline, {"path": path, "patch": CHANGE})).status == "ok"


async def test_any_other_text_replaces_the_whole_file(play, timeline, objects, tool, put) -> None:
    put("doc.md", "old")

    outcome = await play(tool, timeline, {"path": "files/doc.md", "patch": "---\ntitle: new\n---\n# New\n"})

    assert content(objects, outcome) == "---\ntitle: new\n---\n# New\n"
    assert json.loads(outcome.text)["mode"] == "replacement"


async def test_a_moved_hunk_is_reported_with_both_lines(play, timeline, tool, put) -> None:
    put("app.py", APP)

    outcome = await play(tool, timeline, {"path": "files/app.py", "patch": CHANGE.replace("-1,2", "-4,9")})

    assert json.loads(outcome.text)["moved"] == [{"hunk": 1, "stated_line": 4, "applied_at_line": 1}]


async def test_a_failed_hunk_is_reported_with_a_ready_read(play, timeline, objects, tool, put) -> None:
    put("app.py", APP)
    before = dict(objects.stored)

    outcome = await play(tool, timeline, {"path": "files/app.py", "patch": CHANGE.replace("return 1", "return 7")})

    assert outcome.status == "error"
    result = json.loads(outcome.text)
    assert result.pop("message").startswith("Hunk 1 does not match")
    assert result == {
        "path": "turn_2/files/app.py",
        "ok": False,
        "error": "hunk_mismatch",
        "hunk": 1,
        "line": 2,
        "expected": "    return 7",
        "actual": "    return 1",
        "suggested_read": {"path": "fi:turn_2.files/app.py", "line_start": 1, "line_count": 21},
    }
    assert objects.stored == before


async def test_preview_line_numbers_in_a_patch_are_refused(play, timeline, tool, put) -> None:
    put("app.py", APP)
    patch = "@@ -1,2 +1,2 @@\n 1: def main():\n-2:     return 1\n+2:     return 2\n"

    outcome = await play(tool, timeline, {"path": "files/app.py", "patch": patch})

    assert outcome.status == "error"
    assert "line numbers of a preview" in outcome.text


async def test_unicode_must_be_exact(play, timeline, tool, put) -> None:
    put("a.txt", "caf\u00e9 \u201cx\u201d\n")

    outcome = await play(tool, timeline, {"path": "files/a.txt", "patch": '@@ -1 +1 @@\n-caf\u00e9 "x"\n+y\n'})

    assert "look alike" in json.loads(outcome.text)["message"]


async def test_line_endings_and_a_byte_order_mark_are_kept(play, timeline, objects, tool, put) -> None:
    put("a.csv", b"\xef\xbb\xbfa;b\r\n1;2\r\n", mime="text/csv")

    outcome = await play(tool, timeline, {"path": "files/a.csv", "patch": "@@ -1,2 +1,3 @@\n a;b\n 1;2\n+3;4\n"})

    assert objects.stored[outcome.artifacts[0].object_key] == b"\xef\xbb\xbfa;b\r\n1;2\r\n3;4\r\n"


async def test_a_checked_out_file_can_be_patched(play, stored, timeline, objects, history, tool) -> None:
    from_before = stored.put("turn_1", "app.py", APP.encode())
    await play(CheckoutTool(history, objects), timeline, {"paths": [from_before.ref]})

    outcome = await play(tool, timeline, {"path": "files/app.py", "patch": CHANGE})

    assert content(objects, outcome) == APP.replace("1", "2")
    assert objects.stored[from_before.object_key].decode() == APP


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("turn_1/files/app.py", "react.checkout"),
        ("fi:turn_1.files/app.py", "react.checkout"),
        ("../app.py", "must be relative"),
        ("/etc/passwd", "must be relative"),
        ("files/ap.py", "Did you mean turn_2/files/app.py?"),
        ("files/zzzzzzzzzzzzzz", "react.write"),
        ("attachments/sales.csv", "only files/ and outputs/"),
        ("logs/a.txt", "There is no"),
    ],
)
async def test_only_files_that_this_turn_has_are_patched(play, timeline, tool, put, path, said) -> None:
    put("app.py", APP)

    outcome = await play(tool, timeline, {"path": path, "patch": CHANGE})

    assert outcome.status == "error"
    assert said in outcome.text


@pytest.mark.parametrize(
    ("data", "mime", "said"),
    [
        (b"\xff\xfe\x00", "text/plain", "not UTF-8"),
        (b"%PDF-1.7", "application/pdf", "not text"),
        (b"a\x00b", "text/plain", "not text"),
    ],
)
async def test_a_binary_file_is_refused(play, timeline, tool, put, data, mime, said) -> None:
    put("a.bin", data, mime=mime)

    assert said in (await play(tool, timeline, {"path": "files/a.bin", "patch": "x"})).text


@pytest.mark.parametrize("patch", ["", " \n", "--- a\n+++ b\n"])
async def test_an_empty_patch_is_refused(play, timeline, tool, put, patch) -> None:
    put("app.py", APP)

    assert (await play(tool, timeline, {"path": "files/app.py", "patch": patch})).status == "error"


async def test_a_file_that_is_too_large_is_refused(play, stored, timeline, tool, put) -> None:
    put("a.txt", "x")
    large = stored.put("turn_2", "b.txt", b"y").model_copy(update={"size": MAX_WRITTEN_BYTES + 1})
    timeline.result("call_0", "exec_tools.execute_code_python", "ok", large)

    large_patch = await play(tool, timeline, {"path": "files/a.txt", "patch": "x" * (MAX_WRITTEN_BYTES + 1)})

    assert large_patch.status == "error"
    assert (await play(tool, timeline, {"path": "files/b.txt", "patch": "x"})).status == "error"


async def test_a_result_that_does_not_parse_is_a_notice_and_the_file_stays(play, timeline, objects, tool, put) -> None:
    put("app.py", APP)
    put("a.json", "{}")

    python = await play(
        tool, timeline, {"path": "files/app.py", "patch": CHANGE.replace("+    return 2", "+    return (")}
    )
    json_file = await play(tool, timeline, {"path": "files/a.json", "patch": '{"a": }'})

    assert (python.status, json_file.status) == ("ok", "ok")
    assert "post_patch_check_failed: line" in json.loads(python.text)["notices"][0]
    assert "post_patch_check_failed" in json.loads(json_file.text)["notices"][0]
    assert content(objects, json_file) == '{"a": }'


@pytest.mark.parametrize(
    ("before", "params", "after"),
    [
        ("internal", {"kind": "file"}, "external"),
        ("external", {}, "external"),
        ("external", {"channel": "internal"}, "internal"),
        ("internal", {"channel": "internal", "kind": "file"}, "internal"),
    ],
)
async def test_a_file_that_was_offered_stays_offered(play, timeline, tool, put, before, params, after) -> None:
    put("r.csv", "a\n", kind=ArtifactKind.OUTPUT, visibility=before)

    outcome = await play(tool, timeline, {"path": "outputs/r.csv", "patch": "b\n", **params})

    assert outcome.artifacts[0].visibility == after


async def test_the_same_path_can_be_written_patched_and_patched_again(play, timeline, objects, tool) -> None:
    await play(WriteTool(objects), timeline, {"path": "files/app.py", "content": APP})

    await play(tool, timeline, {"path": "files/app.py", "patch": CHANGE})
    outcome = await play(tool, timeline, {"path": "files/app.py", "patch": "@@ -5 +5 @@\n-main()\n+main(2)\n"})

    assert content(objects, outcome) == APP.replace("1", "2").replace("\nmain()", "\nmain(2)")
