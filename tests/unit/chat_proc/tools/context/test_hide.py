"""react.hide: recent blocks give way to a short text, older ones don't, and nothing is lost."""

import pytest
from pydantic import ValidationError

from chat_proc.timeline.view import TimelineView
from chat_proc.tools.context.hide import DEFAULT_REPLACEMENT, HideTool
from chat_proc.tools.workspace.patch import PatchTool
from chat_proc.tools.workspace.write import WriteTool
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.refs import round_ref
from everturn.timeline.blocks import BlockType, HideBody, ThinkingBody
from everturn_testing.timeline import TimelineBuilder, build_file

CSV = build_file("turn_1", "sales.csv", b"a,b\n1,2\n", mime="text/csv")


@pytest.fixture
def timeline(objects) -> TimelineBuilder:
    """Two turns; the second is in its eighth round, each before it with one call."""
    objects.stored[CSV.object_key] = b"a,b\n1,2\n"
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello", CSV)
    timeline.answer("Hi.")
    timeline.start_turn("turn_2", "Work")
    for number in range(1, 8):
        timeline.start_round()
        timeline.add(BlockType.THINKING, round_ref("turn_2", number, "thinking.0"), ThinkingBody(text="hm"))
        timeline.call(f"call_{number}", "demo", {})
        timeline.result(f"call_{number}", "demo", f"result {number} " * 500)
    timeline.start_round()
    return timeline


def bodies(outcome) -> list[HideBody]:
    return [record.body for record in outcome.records]


def text_of(timeline: TimelineBuilder) -> str:
    return "".join(item.text for item in TimelineView(timeline.blocks).items)


async def test_a_recent_result_gives_way_to_the_replacement(play, timeline) -> None:
    params = {"paths": ["tc:turn_2.call_7.result"], "replacement": "Seven rows."}

    outcome = await play(HideTool(), timeline, params)

    assert outcome.status == "ok"
    assert "tc:turn_2.call_7.result: ok, 1 block hidden, about" in outcome.text
    assert "hidden in total: 1 blocks, about" in outcome.text
    shown = text_of(timeline)
    assert "result 7 result 7" not in shown
    assert 'Seven rows. To read it: react.read paths=["tc:turn_2.call_7.result"]' in shown
    assert "result 6 result 6" in shown


async def test_the_tokens_hidden_are_those_of_the_blocks(call_tool, timeline) -> None:
    outcome = await call_tool(HideTool(), timeline, {"paths": ["tc:turn_2.call_6.result", "tc:turn_2.call_7.result"]})

    assert "hidden in total: 2 blocks, about 2" in outcome.text
    assert [body.refs for body in bodies(outcome)] == [("tc:turn_2.call_6.result",), ("tc:turn_2.call_7.result",)]


async def test_a_replacement_with_a_read_hint_gets_no_other(call_tool, timeline) -> None:
    ref = "tc:turn_2.call_7.result"
    params = {"paths": [ref], "replacement": f"Seven rows, see {ref}."}

    assert bodies(await call_tool(HideTool(), timeline, params))[0].replacement == f"Seven rows, see {ref}."


async def test_without_a_replacement_there_is_a_default_one_with_the_way_back(call_tool, timeline) -> None:
    body = bodies(await call_tool(HideTool(), timeline, {"paths": ["tc:turn_2.call_7.result"]}))[0]

    assert body.replacement == f'{DEFAULT_REPLACEMENT} To read it: react.read paths=["tc:turn_2.call_7.result"]'


@pytest.mark.parametrize("path", ["tc:turn_2.call_1.result", "ar:turn_1.user.prompt", CSV.ref])
async def test_a_block_before_the_pre_tail_point_is_refused_with_the_reason(play, timeline, path: str) -> None:
    before = text_of(timeline)

    outcome = await play(HideTool(), timeline, {"paths": [path]})

    assert (outcome.status, outcome.records) == ("error", ())
    assert f"{path}: too_old (it is in the cached part of the prompt" in outcome.text
    assert text_of(timeline).startswith(before)


async def test_hiding_changes_nothing_before_the_pre_tail_point(play, timeline) -> None:
    before = TimelineView(timeline.blocks)

    await play(HideTool(), timeline, {"paths": [f"tc:turn_2.call_{number}.result" for number in range(1, 8)]})

    after = TimelineView(timeline.blocks)
    first = next(n for n, (old, new) in enumerate(zip(before.items, after.items, strict=False)) if old != new)
    assert before.items[first].block.round >= 3


async def test_each_path_has_its_own_status_and_the_others_are_hidden(call_tool, timeline) -> None:
    paths = ["tc:turn_2.call_1.result", "tc:turn_2.call_7.result", "tc:turn_2.call_99.result", "nonsense"]

    outcome = await call_tool(HideTool(), timeline, {"paths": paths})

    statuses = [line.partition(": ")[2].split(" ")[0].rstrip(",") for line in outcome.text.splitlines()]
    assert statuses[:4] == ["too_old", "ok", "not_found", "not_found"]
    assert outcome.status == "ok"
    assert "tc:turn_2.call_99.result: not_found (no visible block has this ref)" in outcome.text


async def test_what_is_hidden_already_is_not_hidden_twice(play, timeline) -> None:
    await play(HideTool(), timeline, {"paths": ["tc:turn_2.call_7.result"]})

    again = await play(HideTool(), timeline, {"paths": ["tc:turn_2.call_7.result"]})

    assert "not_found (it is already hidden)" in again.text
    assert again.records == ()


async def test_a_file_read_alone_is_hidden_by_its_own_name(play, timeline, read_tool) -> None:
    await play(read_tool, timeline, {"paths": [CSV.ref]})
    timeline.start_round()

    outcome = await play(HideTool(), timeline, {"paths": ["turn_1/attachments/sales.csv"]})

    assert outcome.text.startswith(f"{CSV.ref}: ok, 1 block hidden")
    assert "a,b" not in text_of(timeline)


async def test_what_was_hidden_is_read_again_whole(play, timeline, read_tool) -> None:
    await play(HideTool(), timeline, {"paths": ["tc:turn_2.call_7.result"]})
    timeline.start_round()

    await play(read_tool, timeline, {"paths": ["tc:turn_2.call_7.result"]})

    assert "result 7 result 7" in text_of(timeline)


async def test_the_headers_of_turns_and_summaries_are_not_hidden(call_tool, timeline) -> None:
    outcome = await call_tool(HideTool(), timeline, {"paths": [round_ref("turn_2", 0, "header")]})

    assert "not_found (such blocks can't be hidden)" in outcome.text


async def test_a_block_of_another_conversation_is_not_found(call_tool, timeline) -> None:
    outcome = await call_tool(HideTool(), timeline, {"paths": ["tc:conv_2.turn_2.call_7.result"]})

    assert "not_found (it belongs to another conversation)" in outcome.text


async def test_a_repeated_call_hides_the_same(call_tool, timeline) -> None:
    params = {"paths": ["tc:turn_2.call_7.result", "tc:conv_1.turn_2.call_7.result"]}
    first = await call_tool(HideTool(), timeline, params)

    assert await call_tool(HideTool(), timeline, params) == first
    assert len(first.records) == 1


@pytest.mark.parametrize("params", [{}, {"paths": []}, {"paths": ["x"] * 21}, {"paths": "x"}])
async def test_bad_arguments_are_refused(call_tool, timeline, params) -> None:
    with pytest.raises(ValidationError):
        await call_tool(HideTool(), timeline, params)


async def test_one_path_is_written_patched_hidden_and_read_again_in_one_turn(play, stored, read_tool) -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Write")
    history = WorkspaceHistory(stored.artifacts)
    ref = "fi:turn_1.files/a.md"
    steps = [
        (WriteTool(stored.objects), {"path": "files/a.md", "content": "one\ntwo\n"}),
        (read_tool, {"paths": [ref]}),
        (PatchTool(history, stored.objects), {"path": "files/a.md", "patch": "@@ -1,2 +1,2 @@\n one\n-two\n+three\n"}),
        (read_tool, {"paths": ["files/a.md"]}),
        (HideTool(), {"paths": [ref]}),
        (read_tool, {"paths": [ref]}),
        (read_tool, {"paths": [ref]}),
    ]

    outcomes = []
    for tool, params in steps:
        timeline.start_round()
        outcomes.append(await play(tool, timeline, params))

    assert [outcome.status for outcome in outcomes] == ["ok"] * len(steps)
    assert outcomes[1].text.endswith("one\ntwo\n")
    assert outcomes[3].text.endswith("one\nthree\n")
    assert outcomes[4].text.startswith(f"{ref}: ok, ")
    assert outcomes[5].text.endswith("one\nthree\n")
    assert "already shown in full in the result tc:" in outcomes[6].text
