"""react.read: a status for every path first, then bounded contents."""

import json
from collections.abc import Sequence

import pytest

from chat_proc.timeline.view import TimelineView
from chat_proc.tools.context.read import MAX_CHARS
from everturn.core import refs
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import BlockType, HideBody, StoredText, SystemMessageBody, ToolResultBody
from everturn.timeline.sources import Source, SourceDraft
from everturn_testing.timeline import TimelineBuilder, build_file

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


async def test_a_text_file_is_shown_with_its_range(call_tool, timeline, read_tool) -> None:
    outcome = await call_tool(read_tool, timeline, {"paths": [CSV.ref]})

    assert outcome.status == "ok"
    assert outcome.text == (
        "fi:turn_1.user.attachments/sales.csv: 12 characters, 3 lines; shown lines [1-3]/3, characters [0-12]/12\n\n"
        "--- fi:turn_1.user.attachments/sales.csv lines [1-3]/3, characters [0-12]/12 ---\na,b\n1,2\n3,4\n"
    )


async def test_lines_can_be_asked_for(call_tool, timeline, read_tool) -> None:
    items = [{"path": CSV.ref, "line_start": 2, "line_count": 1}]

    outcome = await call_tool(read_tool, timeline, {"items": items})

    assert outcome.text.endswith("lines [2-2]/3 ---\n2: 1,2")


async def test_missing_paths_are_reported_and_the_rest_is_read(call_tool, timeline, read_tool) -> None:
    outcome = await call_tool(read_tool, timeline, {"paths": ["fi:turn_1.files/none.md", CSV.ref, "nonsense\n"]})

    assert outcome.status == "ok"
    assert "fi:turn_1.files/none.md: missing (there is no such file)\n" in outcome.text
    assert "nonsense\\n: missing (" in outcome.text
    assert "a,b" in outcome.text


async def test_nothing_found_at_all_is_an_error(call_tool, timeline, read_tool) -> None:
    outcome = await call_tool(read_tool, timeline, {"paths": ["fi:turn_1.files/none.md"]})

    assert outcome.status == "error"


async def test_what_the_prompt_shows_whole_is_pointed_to(call_tool, timeline, read_tool) -> None:
    outcome = await call_tool(read_tool, timeline, {"paths": ["ar:turn_1.user.prompt"]})

    assert outcome.text == (
        "ar:turn_1.user.prompt: already shown in full in the block with the ref ar:turn_1.user.prompt"
    )


async def test_the_rest_of_a_cut_result_is_read_from_its_offset(call_tool, timeline, read_tool) -> None:
    items = [{"path": "tc:turn_1.call_1.result", "offset": 24_000}]

    outcome = await call_tool(read_tool, timeline, {"items": items})

    assert "characters [24000-30053]/30053" in outcome.text
    assert outcome.text.count("r" * 6000) == 1


async def test_one_call_is_bounded_and_says_what_it_left_out(call_tool, timeline, read_tool) -> None:
    items = [{"path": LONG.ref, "offset": offset, "max_text_symbols": 20_000} for offset in (0, 20_000, 40_000)]

    outcome = await call_tool(read_tool, timeline, {"items": items})

    assert len(outcome.text) < MAX_CHARS + 2000
    assert "more at offset" in outcome.text
    assert "content not shown" in outcome.text


async def test_stats_only_shows_no_content(call_tool, timeline, read_tool) -> None:
    outcome = await call_tool(read_tool, timeline, {"paths": [CSV.ref, PHOTO.ref], "stats_only": True})

    assert "12 characters, 3 lines; content not shown" in outcome.text
    assert "image/png, 3 bytes" in outcome.text
    assert outcome.data is None


async def test_an_image_of_an_earlier_turn_is_attached_for_the_model(call_tool, timeline, read_tool) -> None:
    timeline.start_turn("turn_2", "Look again")

    outcome = await call_tool(read_tool, timeline, {"paths": [PHOTO.ref]})

    assert "attached below" in outcome.text
    assert outcome.artifacts == ()
    assert outcome.data == {
        "attached": [
            {"ref": PHOTO.ref, "mime": "image/png", "sha256": PHOTO.sha256, "name": "photo.png", "size": 3}
            | {"object_key": PHOTO.object_key},
        ]
    }


async def test_a_binary_file_stays_metadata(call_tool, timeline, read_tool) -> None:
    outcome = await call_tool(read_tool, timeline, {"paths": [SHEET.ref]})

    assert outcome.status == "ok"
    assert "not text: open it with a program" in outcome.text


async def test_a_store_that_is_down_fails_that_path_only(call_tool, timeline, read_tool, objects) -> None:
    objects.down = True

    outcome = await call_tool(read_tool, timeline, {"paths": [CSV.ref, "ar:turn_1.user.prompt"]})

    assert outcome.status == "ok"
    assert "is currently unavailable" in outcome.text


async def test_an_invalid_number_does_not_affect_other_paths(call_tool, timeline, read_tool) -> None:
    items = [{"path": CSV.ref, "line_start": 0}, {"path": CSV.ref, "offset": "ten"}, {"path": CSV.ref}]

    outcome = await call_tool(read_tool, timeline, {"items": items})

    assert outcome.status == "ok"
    assert "not read (line_start must be an integer of at least 1, not '0')" in outcome.text
    assert "not read (offset must be an integer of at least 0, not 'ten')" in outcome.text
    assert "a,b" in outcome.text


async def test_a_range_beyond_the_end_is_empty_and_no_error(call_tool, timeline, read_tool) -> None:
    items = [{"path": CSV.ref, "line_start": 90, "line_count": 5}, {"path": CSV.ref, "offset": 900}]

    outcome = await call_tool(read_tool, timeline, {"items": items})

    assert outcome.status == "ok"
    assert "shown nothing, because there is no line 90: the last line is 3" in outcome.text
    assert "shown characters [12-12]/12" in outcome.text


async def test_lines_and_an_offset_exclude_each_other(call_tool, timeline, read_tool) -> None:
    outcome = await call_tool(read_tool, timeline, {"items": [{"path": CSV.ref, "line_start": 2, "offset": 4}]})

    assert outcome.status == "error"
    assert "not read (pass either line_start and line_count, or an offset)" in outcome.text


async def test_lines_without_room_are_continued_at_a_line(call_tool, timeline, read_tool) -> None:
    items = [{"path": CSV.ref, "line_start": 1, "max_text_symbols": 8}]

    outcome = await call_tool(read_tool, timeline, {"items": items})

    assert "shown lines [1-1]/3; more at line_start 2" in outcome.text


async def test_several_ranges_of_one_file_are_each_given(call_tool, timeline, read_tool) -> None:
    items = [{"path": CSV.ref, "line_start": n, "line_count": 1} for n in (1, 3)]

    outcome = await call_tool(read_tool, timeline, {"items": items})

    assert "1: a,b" in outcome.text
    assert "3: 3,4" in outcome.text


async def test_a_range_is_given_though_all_of_it_is_visible(call_tool, timeline, read_tool) -> None:
    items = [{"path": "ar:turn_1.user.prompt", "line_start": 1}]

    assert "1: Hello" in (await call_tool(read_tool, timeline, {"items": items})).text


async def test_the_same_content_read_again_is_pointed_to(play, timeline, read_tool) -> None:
    await play(read_tool, timeline, {"paths": [CSV.ref]})

    again = await play(read_tool, timeline, {"paths": [CSV.ref]})

    assert again.text.startswith(f"{CSV.ref}: already shown in full in the result tc:turn_1.call_")
    assert "a,b" not in again.text


async def test_a_hidden_read_is_shown_again(play, timeline, read_tool) -> None:
    await play(read_tool, timeline, {"paths": [CSV.ref]})
    body = HideBody(refs=(timeline.blocks[-1].ref,), through_seq=len(timeline.blocks), replacement="gone")
    timeline.add(BlockType.HIDE, refs.round_ref("turn_1", 1, "hide"), body)

    assert "a,b" in (await play(read_tool, timeline, {"paths": [CSV.ref]})).text


async def test_a_hidden_block_is_shown_again(play, timeline, read_tool) -> None:
    body = HideBody(refs=("ar:turn_1.user.prompt",), through_seq=len(timeline.blocks), replacement="gone")
    timeline.add(BlockType.HIDE, refs.round_ref("turn_1", 1, "hide"), body)

    assert "Hello" in (await play(read_tool, timeline, {"paths": ["ar:turn_1.user.prompt"]})).text


async def test_a_rewritten_file_is_shown_again(play, timeline, read_tool, objects) -> None:
    await play(read_tool, timeline, {"paths": [CSV.ref]})
    changed = build_file("turn_1", "sales.csv", b"new,data", mime="text/csv")
    objects.stored[changed.object_key] = b"new,data"
    timeline.result("call_9", "react.write", "written", changed)

    assert "new,data" in (await play(read_tool, timeline, {"paths": [CSV.ref]})).text


async def test_after_pruning_the_same_read_gives_the_same_part(play, timeline, read_tool) -> None:
    item = {"path": CSV.ref, "line_start": 2, "line_count": 1}
    first = await play(read_tool, timeline, {"items": [item], "paths": [CSV.ref]})
    timeline.start_turn("turn_2", "More")
    start = len(timeline.blocks) - 1
    notice = SystemMessageBody(kind="cache_ttl_pruned", text="", recent_from_seq=start, intact_from_seq=start)
    timeline.add(BlockType.SYSTEM_MESSAGE, refs.round_ref("turn_2", 0, "pruned"), notice)

    again = await play(read_tool, timeline, {"items": [item], "paths": [CSV.ref]})

    assert again.text == first.text


async def test_a_result_stored_whole_is_read_in_ranges(call_tool, timeline, read_tool, objects) -> None:
    data = "".join(f"row {n}\n" for n in range(50_000)).encode()
    objects.stored["conv_1/big"] = data
    whole = StoredText(object_key="conv_1/big", sha256="big", chars=len(data), bytes=len(data))
    body = ToolResultBody(tool_id="demo", status="ok", text="preview", whole=whole)
    ref = refs.result_ref("turn_1", "call_2")
    timeline.add(BlockType.TOOL_RESULT, ref, body)

    items = [{"path": ref, "line_start": 40_001, "line_count": 2}, {"path": ref, "offset": len(data) - 10}]
    outcome = await call_tool(read_tool, timeline, {"items": items, "paths": [ref]})

    assert "40001: row 40000\n40002: row 40001" in outcome.text
    assert f"shown characters [{len(data) - 10}-{len(data)}]/{len(data)}" in outcome.text
    assert f"{len(data)} characters, 50000 lines; shown lines [1-" in outcome.text


async def test_an_image_that_goes_to_the_model_already_is_not_attached_twice(play, timeline, read_tool) -> None:
    first = await play(read_tool, timeline, {"paths": [PHOTO.ref]})

    assert f"already attached to the block with the ref {PHOTO.ref}" in first.text
    assert first.data is None


async def test_an_image_above_the_cap_is_not_attached(call_tool, timeline, read_tool) -> None:
    large = PHOTO.model_copy(update={"ref": "fi:turn_1.outputs/large.png", "size": 6 * 1024 * 1024})
    timeline.result("call_2", "demo", "drawn", large)

    outcome = await call_tool(read_tool, timeline, {"paths": [large.ref]})

    assert "too large to attach (5242880 bytes at most)" in outcome.text
    assert outcome.data is None


async def test_a_svg_is_read_as_text(call_tool, timeline, read_tool, objects) -> None:
    drawing = build_file("turn_1", "a.svg", b"<svg/>", mime="image/svg+xml")
    objects.stored[drawing.object_key] = b"<svg/>"
    timeline.result("call_2", "demo", "drawn", drawing)

    assert "<svg/>" in (await call_tool(read_tool, timeline, {"paths": [drawing.ref]})).text


class Pool:
    """Implements SourcePool."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.rows = tuple(
            Source(sid, f"Title {sid}", f"https://example.com/{sid}", text=text[:20], text_chars=len(text))
            for sid, text in enumerate(texts, start=1)
        )

    def claim(self, drafts: Sequence[SourceDraft]) -> tuple[Source, ...]:
        raise NotImplementedError

    async def load_text(self, sid: int) -> str:
        return self.texts[sid - 1]


async def test_sources_are_rows_with_their_whole_texts(call_tool, timeline, read_tool) -> None:
    outcome = await call_tool(
        read_tool, timeline, {"paths": ["so:sources_pool[1-2,9]"]}, pool=Pool("one " * 50, "two " * 50)
    )

    assert "so:sources_pool[1-2,9]: 2 rows, characters of their texts 1: 200, 2: 200; no rows 9" in outcome.text
    rows = json.loads(outcome.text.partition("---\n")[2])
    assert [row["text"] for row in rows] == ["one " * 50, "two " * 50]


async def test_sources_share_one_budget_and_stay_valid_json(call_tool, timeline, read_tool) -> None:
    items = [{"path": "so:sources_pool[1-3]", "max_text_symbols": 3000}]

    outcome = await call_tool(read_tool, timeline, {"items": items}, pool=Pool("a" * 9000, "b", "c" * 9000))

    rows = json.loads(outcome.text.partition("---\n")[2])
    assert sum(len(row["text"]) for row in rows) <= 3000
    assert rows[1]["text"] == "b"
    assert rows[0]["text_shown"].endswith("/9000")
    assert "cut: to see the rest, read one source at a time" in outcome.text


async def test_the_rest_of_one_source_is_read_from_its_offset(call_tool, timeline, read_tool) -> None:
    pool = Pool("a" * 30_000 + "the end")
    one = [{"path": "so:sources_pool[1]", "offset": 30_000}]
    two = [{"path": "so:sources_pool[1-2]", "offset": 30_000}]

    assert "the end" in (await call_tool(read_tool, timeline, {"items": one}, pool=pool)).text
    pool = Pool("a", "b")
    assert "one source at a time" in (await call_tool(read_tool, timeline, {"items": two}, pool=pool)).text


async def test_sources_read_again_are_pointed_to(play, timeline, read_tool) -> None:
    pool = Pool("one")
    await play(read_tool, timeline, {"paths": ["so:sources_pool[1]"]}, pool=pool)

    again = await play(read_tool, timeline, {"paths": ["so:conv_1.sources_pool[1]"]}, pool=pool)

    assert "already shown in full in the result tc:" in again.text


async def test_the_index_of_a_turn_is_read(call_tool, timeline, read_tool) -> None:
    outcome = await call_tool(read_tool, timeline, {"paths": ["ar:turn_1.react.turn.index"]})

    assert "index of turn_1:" in outcome.text
    assert f"- {LONG.ref} (file, text/plain, 55000 bytes, from react.write, external)" in outcome.text


async def test_the_statuses_precede_the_first_empty_line(call_tool, timeline, read_tool) -> None:
    paths = [CSV.ref, "fi:turn_1.files/none.md", SHEET.ref]

    head = (await call_tool(read_tool, timeline, {"paths": paths})).text.partition("\n\n")[0]

    assert [line.partition(": ")[0] for line in head.splitlines()] == paths


async def test_a_text_above_ten_megabytes_is_for_programs(call_tool, timeline, read_tool) -> None:
    large = LONG.model_copy(update={"ref": "fi:turn_1.files/large.txt", "size": 11 * 1024 * 1024})
    timeline.result("call_2", "demo", "written", large)

    outcome = await call_tool(read_tool, timeline, {"paths": [large.ref]})

    assert "too large to read here: open it with a program" in outcome.text


async def test_what_pruning_leaves_of_a_read_keeps_its_ref_and_its_range(play, timeline, read_tool, objects) -> None:
    item = {"path": LONG.ref, "line_start": 20, "line_count": 300}
    await play(read_tool, timeline, {"items": [item]})
    read = timeline.blocks[-1]
    timeline.start_turn("turn_2", "More")
    start = len(timeline.blocks) - 1
    notice = SystemMessageBody(kind="cache_ttl_pruned", text="", recent_from_seq=start, intact_from_seq=start)
    timeline.add(BlockType.SYSTEM_MESSAGE, refs.round_ref("turn_2", 0, "pruned"), notice)

    (left,) = [shown.text for shown in TimelineView(timeline.blocks).items if shown.block == read]

    assert len(left) < 800
    assert LONG.ref in left
    assert "lines [20-319]/5000" in left


async def test_an_unknown_kind_of_name_is_missing(call_tool, timeline, read_tool) -> None:
    outcome = await call_tool(read_tool, timeline, {"paths": ["mem:facts/1"]})

    assert "mem:facts/1: missing ('mem:facts/1' is not a ref: refs start with ar:, tc:, fi:" in outcome.text
