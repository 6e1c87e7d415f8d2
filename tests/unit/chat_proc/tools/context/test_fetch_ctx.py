"""A program reads what refs name. How they are found: see test_resolve."""

import pytest

from chat_proc.tools.context.fetch_ctx import FetchCtxTool
from chat_proc.tools.context.resolve import ReadPorts
from everturn.timeline.sources import SourceDraft
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import TimelineBuilder, build_file


@pytest.fixture
def tool(objects, tool_ports) -> FetchCtxTool:
    ports = ReadPorts(tool_ports.artifacts, tool_ports.reader, tool_ports.sources)
    return FetchCtxTool(objects, tool_ports.attachments, ports)


@pytest.fixture
def timeline(objects) -> TimelineBuilder:
    csv, png = (
        build_file("turn_1", "sales.csv", b"a,b\n", mime="text/csv"),
        build_file("turn_1", "a.png", b"x", mime="image/png"),
    )
    objects.stored[csv.object_key] = b"a,b\n"
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Chart the sales of May", csv, png)
    timeline.start_round()
    timeline.call("call_1", "demo.echo", {"text": "hi"})
    timeline.result("call_1", "demo.echo", "echo: hi")
    return timeline


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        ("ar:turn_1.user.prompt", "Chart the sales of May"),
        ("tc:turn_1.call_1.call", 'demo.echo\n{"text":"hi"}'),
        ("tc:turn_1.call_1.result", "echo: hi"),
        ("fi:turn_1.user.attachments/sales.csv", "a,b\n"),
    ],
)
async def test_what_a_ref_names_is_given_whole(call_tool, timeline, tool, ref, text) -> None:
    value = (await call_tool(tool, timeline, {"ref": ref})).value

    assert (value["text"], value["chars"], value["next_offset"]) == (text, len(text), None)


async def test_a_long_text_is_read_in_parts(call_tool, timeline, tool) -> None:
    wanted = {"ref": "ar:turn_1.user.prompt", "max_chars": 5}

    first = (await call_tool(tool, timeline, wanted)).value
    second = (await call_tool(tool, timeline, wanted | {"offset": first["next_offset"]})).value

    assert first["text"] + second["text"] == "Chart the "


async def test_sources_are_rows_with_their_whole_texts_and_the_mark_of_strangers(call_tool, timeline, tool) -> None:
    pool = MemorySourcePool()
    pool.claim([SourceDraft("A page", "https://a.example", text="All of it.")])

    outcome = await call_tool(tool, timeline, {"ref": "so:sources_pool[1,9]", "max_chars": 3}, pool=pool)

    (row,) = outcome.value["rows"]
    assert (row["sid"], row["url"], row["text"], row["next_offset"]) == (1, "https://a.example", "All", 3)
    assert outcome.value["absent"] == [9]
    assert outcome.untrusted


@pytest.mark.parametrize(
    "ref",
    ["ar:turn_9.user.prompt", "fi:turn_1.user.attachments/a.png", "nonsense", "ar:conv_x.turn_1.user.prompt", "so:x"],
)
async def test_what_can_not_be_read_is_an_error_that_says_why(call_tool, timeline, tool, ref) -> None:
    outcome = await call_tool(tool, timeline, {"ref": ref})

    assert outcome.status == "error"
    assert outcome.text
