"""react.write: one file of this turn, stored before the call returns."""

import pytest

from chat_proc.tools.workspace.write import MAX_CONTENT_BYTES, WriteParams, WriteTool
from everturn.errors import Unavailable
from everturn.testing.timelines import TimelineBuilder


@pytest.fixture
def timeline() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_2", "Write")
    timeline.start_round()
    return timeline


def test_the_content_comes_last_so_that_it_can_stream() -> None:
    assert list(WriteParams.model_fields) == ["path", "channel", "kind", "content"]


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


@pytest.mark.parametrize("path", ["turn_1/files/a.md", "../a.md", "/a.md", "attachments/a.md"])
async def test_a_place_outside_this_turn_is_refused_in_words(call_tool, timeline, objects, path) -> None:
    outcome = await call_tool(WriteTool(objects), timeline, {"path": path, "content": "x"})

    assert outcome.status == "error"
    assert outcome.text.startswith("Nothing was written: ")
    assert objects.stored == {}


async def test_a_text_beyond_the_cap_is_refused(call_tool, timeline, objects) -> None:
    outcome = await call_tool(WriteTool(objects), timeline, {"path": "files/a.md", "content": "é" * MAX_CONTENT_BYTES})

    assert outcome.status == "error"


async def test_without_the_store_nothing_is_claimed(call_tool, timeline, objects) -> None:
    objects.down = True

    with pytest.raises(Unavailable):
        await call_tool(WriteTool(objects), timeline, {"path": "files/a.md", "content": "x"})
