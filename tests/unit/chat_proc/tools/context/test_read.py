"""react.read: a status for every path first, then bounded contents."""

import pytest
from pydantic import ValidationError

from chat_proc.tools.context.read import MAX_CHARS, ReadTool
from everturn.errors import Invalid
from everturn.model.artifacts import ArtifactKind
from everturn.testing.timelines import TimelineBuilder, build_file

CSV = build_file("turn_1", "sales.csv", b"\xef\xbb\xbfa,b\n1,2\n3,4\n", mime="text/csv")
PHOTO = build_file("turn_1", "photo.png", b"png", mime="image/png")
SHEET = build_file("turn_1", "book.xlsx", b"PK", mime="application/vnd.ms-excel")
LONG = build_file("turn_1", "long.txt", b"0123456789\n" * 5000, kind=ArtifactKind.FILE)


@pytest.fixture
def timeline(objects) -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello", CSV, PHOTO, SHEET)
    timeline.start_round()
    timeline.result("call_1", "react.write", "r" * 30_000, LONG)
    objects.stored = {
        CSV.object_key: b"\xef\xbb\xbfa,b\n1,2\n3,4\n",
        PHOTO.object_key: b"png",
        LONG.object_key: b"0123456789\n" * 5000,
    }
    return timeline


async def test_a_text_file_is_shown_with_its_range(call_tool, timeline, objects) -> None:
    outcome = await call_tool(ReadTool(objects), timeline, {"paths": [CSV.ref]})

    assert outcome.status == "ok"
    assert outcome.text == (
        "fi:turn_1.user.attachments/sales.csv: 12 characters, 3 lines; shown lines [1-3]/3, characters [0-12]/12\n\n"
        "--- fi:turn_1.user.attachments/sales.csv lines [1-3]/3, characters [0-12]/12 ---\na,b\n1,2\n3,4\n"
    )


async def test_lines_can_be_asked_for(call_tool, timeline, objects) -> None:
    items = [{"path": CSV.ref, "line_start": 2, "line_count": 1}]

    outcome = await call_tool(ReadTool(objects), timeline, {"items": items})

    assert outcome.text.endswith("lines [2-2]/3 ---\n2: 1,2")


async def test_missing_paths_are_reported_and_the_rest_is_read(call_tool, timeline, objects) -> None:
    outcome = await call_tool(
        ReadTool(objects), timeline, {"paths": ["fi:turn_1.files/none.md", CSV.ref, "nonsense\n"]}
    )

    assert outcome.status == "ok"
    assert "fi:turn_1.files/none.md: missing (there is no such file)\n" in outcome.text
    assert "nonsense\\n: missing (" in outcome.text
    assert "a,b" in outcome.text


async def test_nothing_found_at_all_is_an_error(call_tool, timeline, objects) -> None:
    outcome = await call_tool(ReadTool(objects), timeline, {"paths": ["fi:turn_1.files/none.md"]})

    assert outcome.status == "error"


async def test_what_the_prompt_shows_whole_is_pointed_to(call_tool, timeline, objects) -> None:
    outcome = await call_tool(ReadTool(objects), timeline, {"paths": ["ar:turn_1.user.prompt"]})

    assert outcome.text == "ar:turn_1.user.prompt: visible already, whole, in the block with this ref"


async def test_the_rest_of_a_cut_result_is_read_from_its_offset(call_tool, timeline, objects) -> None:
    items = [{"path": "tc:turn_1.call_1.result", "offset": 24_000}]

    outcome = await call_tool(ReadTool(objects), timeline, {"items": items})

    assert "characters [24000-30053]/30053" in outcome.text
    assert outcome.text.count("r" * 6000) == 1


async def test_one_call_is_bounded_and_says_what_it_left_out(call_tool, timeline, objects) -> None:
    items = [{"path": LONG.ref, "offset": offset, "max_text_symbols": 20_000} for offset in (0, 20_000, 40_000)]

    outcome = await call_tool(ReadTool(objects), timeline, {"items": items})

    assert len(outcome.text) < MAX_CHARS + 2000
    assert "more at offset" in outcome.text
    assert "content not shown" in outcome.text


async def test_stats_only_shows_no_content(call_tool, timeline, objects) -> None:
    outcome = await call_tool(ReadTool(objects), timeline, {"paths": [CSV.ref, PHOTO.ref], "stats_only": True})

    assert "12 characters, 3 lines; content not shown" in outcome.text
    assert "image/png, 3 bytes" in outcome.text
    assert outcome.data is None


async def test_an_image_is_attached_for_the_model(call_tool, timeline, objects) -> None:
    outcome = await call_tool(ReadTool(objects), timeline, {"paths": [PHOTO.ref]})

    assert "attached below" in outcome.text
    assert outcome.artifacts == ()
    assert outcome.data == {
        "attached": [
            {"ref": PHOTO.ref, "mime": "image/png", "sha256": PHOTO.sha256, "name": "photo.png", "size": 3},
        ]
    }


async def test_a_binary_file_stays_metadata(call_tool, timeline, objects) -> None:
    outcome = await call_tool(ReadTool(objects), timeline, {"paths": [SHEET.ref]})

    assert outcome.status == "ok"
    assert "not a text: open it with a program" in outcome.text


async def test_a_store_that_is_down_fails_that_path_only(call_tool, timeline, objects) -> None:
    objects.down = True

    outcome = await call_tool(ReadTool(objects), timeline, {"paths": [CSV.ref, "ar:turn_1.user.prompt"]})

    assert outcome.status == "ok"
    assert "can't be had now" in outcome.text


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"paths": []},
        {"paths": ["x"] * 21},
        {"items": [{"path": "x", "line_start": 0}]},
        {"items": [{"path": "x", "offset": -1}]},
        {"items": [{"path": ""}]},
        {"paths": "ar:turn_1.user.prompt"},
        {"items": [{"path": "x", "max_text_symbols": 10**9}]},
    ],
)
async def test_bad_arguments_are_refused(call_tool, timeline, objects, params) -> None:
    with pytest.raises((ValidationError, Invalid)):
        await call_tool(ReadTool(objects), timeline, params)
