"""react.write: one file of this turn, stored before the call returns."""

import pytest

from chat_proc.catalog.tool import ToolCall, ToolContext
from chat_proc.tools.workspace.write import MAX_NOTE_CHARS, WriteParams, WriteTool, read_tags
from chat_proc.workspace.local import MAX_DELTA_BYTES, MAX_WORKSPACE_FILES, MAX_WRITTEN_BYTES
from everturn.core.errors import Unavailable
from everturn.core.ids import CallId, ConversationId
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import BlockType
from everturn.timeline.sources import Source
from everturn_testing.files.stored_files import OWNER
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW, build_file
from everturn_testing.turns.live_turn import RecordingTurn


def test_path_and_channel_precede_the_content() -> None:
    assert list(WriteParams.model_fields) == ["path", "channel", "content", "kind", "scratchpad"]


async def test_another_order_of_parameters_is_accepted(call_tool, timeline, objects) -> None:
    outcome = await call_tool(WriteTool(objects), timeline, {"content": "x", "kind": "file", "path": "outputs/a.md"})

    assert (outcome.status, outcome.artifacts[0].path) == ("ok", "turn_2/outputs/a.md")


@pytest.mark.parametrize(
    ("extra", "visibility", "said"),
    [
        ({}, "internal", "Written and shown in the canvas."),
        ({"kind": "file"}, "external", "Written and shown in the canvas, offered to the user as a download."),
        ({"channel": "timeline_text"}, "internal", "Written and shown in the conversation."),
        ({"channel": "internal", "kind": "file"}, "internal", "Written for later use; the user does not see it."),
    ],
)
async def test_where_a_text_is_shown_and_offered(call_tool, timeline, objects, extra, visibility, said) -> None:
    params = {"path": "files/report.md", "content": "# Report", **extra}

    outcome = await call_tool(WriteTool(objects), timeline, params)

    (artifact,) = outcome.artifacts
    assert (outcome.status, outcome.text) == ("ok", said)
    assert (artifact.ref, artifact.mime, artifact.visibility) == (
        "fi:turn_2.files/report.md",
        "text/markdown",
        visibility,
    )
    assert objects.stored[artifact.object_key] == b"# Report"


async def test_json_may_be_given_as_an_object(call_tool, timeline, objects) -> None:
    outcome = await call_tool(WriteTool(objects), timeline, {"path": "outputs/a.json", "content": {"a": [1, "é"]}})

    assert objects.stored[outcome.artifacts[0].object_key].decode() == '{\n  "a": [\n    1,\n    "é"\n  ]\n}\n'


async def test_a_lone_surrogate_does_not_break_the_file(call_tool, timeline, objects) -> None:
    outcome = await call_tool(WriteTool(objects), timeline, {"path": "files/a.md", "content": "a\ud800b"})

    assert objects.stored[outcome.artifacts[0].object_key] == b"a?b"


@pytest.mark.parametrize("path", ["turn_1/files/a.md", "../a.md", "/a.md", "attachments/a.md", "outputs", "ar:x"])
async def test_a_path_outside_this_turn_is_refused(call_tool, timeline, objects, path) -> None:
    outcome = await call_tool(WriteTool(objects), timeline, {"path": path, "content": "x"})

    assert outcome.status == "error"
    assert outcome.text.startswith("Nothing was written: ")
    assert objects.stored == {}


async def test_a_text_beyond_the_cap_is_refused(call_tool, timeline, objects) -> None:
    outcome = await call_tool(WriteTool(objects), timeline, {"path": "files/a.md", "content": "é" * MAX_WRITTEN_BYTES})

    assert outcome.status == "error"


async def test_without_the_store_nothing_is_claimed(call_tool, timeline, objects) -> None:
    objects.down = True

    with pytest.raises(Unavailable):
        await call_tool(WriteTool(objects), timeline, {"path": "files/a.md", "content": "x"})


async def test_a_path_that_is_a_folder_already_is_refused(call_tool, timeline, objects) -> None:
    timeline.result("call_0", "react.write", "ok", build_file("turn_2", "src/a.py", b"x", kind=ArtifactKind.FILE))

    outcome = await call_tool(WriteTool(objects), timeline, {"path": "files/src", "content": "x"})

    assert (outcome.status, objects.stored) == ("error", {})
    assert "both a file and a folder" in outcome.text


async def test_what_a_turn_may_write_in_all_is_bounded(call_tool, timeline, objects) -> None:
    big = build_file("turn_2", "big.bin", b"x", kind=ArtifactKind.OUTPUT).model_copy(update={"size": MAX_DELTA_BYTES})
    timeline.result("call_0", "exec_tools.execute_code_python", "ok", big)

    outcome = await call_tool(WriteTool(objects), timeline, {"path": "files/a.md", "content": "x"})

    assert "would exceed 250 MiB" in outcome.text


async def test_the_number_of_files_in_the_workspace_is_bounded(call_tool, timeline, objects) -> None:
    many = [build_file("turn_2", f"f{n}", b"x", kind=ArtifactKind.FILE) for n in range(MAX_WORKSPACE_FILES)]
    timeline.result("call_0", "exec_tools.execute_code_python", "ok", *many)

    refused = await call_tool(WriteTool(objects), timeline, {"path": "files/one_more", "content": "x"})
    again = await call_tool(WriteTool(objects), timeline, {"path": "files/f7", "content": "x"})
    output = await call_tool(WriteTool(objects), timeline, {"path": "outputs/one_more", "content": "x"})

    assert (refused.status, again.status, output.status) == ("error", "ok", "ok")


NOTE = "[P] Answers in Spanish.\n- [K][D] The plan is in fi:turn_2.files/plan.md\nand goes on here [S]"


async def test_a_scratchpad_note_stays_as_an_anchor_as_it_was_written(call_tool, timeline, objects) -> None:
    params = {"path": "files/note.md", "channel": "internal", "content": NOTE + "\n", "scratchpad": True}

    outcome = await call_tool(WriteTool(objects), timeline, params, call_id="call_ab")

    (record,) = outcome.records
    assert (record.type, record.ref) == (BlockType.ANCHOR, "ar:turn_2.artifacts.react.note.call_ab")
    assert (record.body.text, record.body.tags, record.body.path) == (NOTE, ("P", "D", "K"), "turn_2/files/note.md")
    assert outcome.artifacts[0].visibility == "internal"


async def test_internal_writing_without_a_scratchpad_is_a_file_and_no_note(call_tool, timeline, objects) -> None:
    outcome = await call_tool(
        WriteTool(objects), timeline, {"path": "files/n.md", "channel": "internal", "content": "[P] x"}
    )

    assert outcome.records == ()
    assert outcome.artifacts[0].visibility == "internal"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"channel": "canvas", "content": "x"}, "only with the internal channel"),
        ({"channel": "internal", "content": "x" * (MAX_NOTE_CHARS + 1)}, "1 to 2000 characters"),
        ({"channel": "internal", "content": " \n"}, "1 to 2000 characters"),
    ],
)
async def test_a_file_is_written_even_if_its_note_is_invalid(call_tool, timeline, objects, params, said) -> None:
    outcome = await call_tool(WriteTool(objects), timeline, {"path": "files/n.md", "scratchpad": True, **params})

    assert (outcome.status, outcome.records, len(outcome.artifacts)) == ("ok", (), 1)
    assert said in outcome.text


@pytest.mark.parametrize(
    ("note", "tags"),
    [
        ("[D] a\n[P] b\n[D] c", ("P", "D")),
        ("  [A] done", ("A",)),
        ("see [K] later", ()),
        ("[X] no\n[p] no", ()),
        ("* [S] fact", ("S",)),
    ],
)
def test_tags_are_read_from_the_beginning_of_lines(note: str, tags: tuple[str, ...]) -> None:
    assert read_tags(note) == tags


SOURCES = tuple(Source(sid, f"Title {sid}", f"https://example.org/{sid}", "web") for sid in (1, 2, 3))


@pytest.mark.parametrize(
    ("path", "content", "sids"),
    [
        ("files/a.md", "One [[S:2]] and [[S:1,9]].", [2, 1]),
        ("files/a.html", "<p>[[S:3]]</p>", [3]),
        ("files/a.txt", "[[S:1-2]]", [1, 2]),
        ("files/a.json", "[[S:1]]", None),
        ("files/b.json", {"citations": [{"sids": [3, 1]}, {"sids": [3, 7, "x"]}, "no"]}, [3, 1]),
        ("files/c.json", [1, 2], None),
        ("files/a.md", "none", None),
    ],
)
async def test_the_sources_that_a_file_cites_are_recorded(timeline, objects, path, content, sids) -> None:
    pool = MemorySourcePool()
    pool.by_key = {source.url: source for source in SOURCES}
    context = ToolContext(
        OWNER, ConversationId("conv_1"), timeline.turn_id, 1, timeline.blocks, NOW, pool, RecordingTurn()
    )
    params = WriteParams.model_validate({"path": path, "content": content})

    outcome = await WriteTool(objects).run(ToolCall(CallId("call_1"), params, None, context))

    assert (outcome.data or {}).get("sources_used") == sids
