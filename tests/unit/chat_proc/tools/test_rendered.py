"""Functions of the operator that return a file for the person."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from chat_proc.catalog.described import DescribedTool, FunctionTool, open_tool_threads
from chat_proc.catalog.tool import Rendered, Tool
from chat_proc.tools.rendered import RenderingTool
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.timeline import TimelineBuilder


def report(name: str, mime: str = "text/html") -> Rendered:
    """Renders a report."""
    return Rendered(name, "<h1>Sales</h1>", mime)


@pytest.fixture
def threads() -> Generator[ThreadPoolExecutor]:
    with open_tool_threads() as opened:
        yield opened


@pytest.fixture
def tool(objects: MemoryObjects, threads: ThreadPoolExecutor) -> Tool:
    return RenderingTool(FunctionTool("shop.report", report, DescribedTool(), threads), objects)


@pytest.fixture
def timeline() -> TimelineBuilder:
    builder = TimelineBuilder()
    builder.start_turn("turn_1", "A report, please.")
    builder.start_round()
    return builder


async def test_the_person_gets_the_file_and_the_model_one_line(tool, objects, timeline, play) -> None:
    outcome = await play(tool, timeline, {"name": "sales.html"})

    (artifact,) = outcome.artifacts
    assert (artifact.filename, artifact.mime, artifact.visibility) == ("sales.html", "text/html", "external")
    assert objects.stored[artifact.object_key] == b"<h1>Sales</h1>"
    assert "<h1>" not in outcome.text and artifact.ref in outcome.text


@pytest.mark.parametrize("name", ["../up.html", "", "a/../../b.html"])
async def test_a_file_that_can_not_be_stored_is_an_error(tool, timeline, play, name: str) -> None:
    outcome = await play(tool, timeline, {"name": name})

    assert (outcome.status, outcome.artifacts) == ("error", ())


@pytest.mark.parametrize("mime", ["text/html\r\nA: b", "text/html\n", "html", "text/é", f"text/{'x' * 100}", "a/b; c"])
async def test_a_type_that_no_header_can_carry_is_an_error(tool, timeline, play, mime: str) -> None:
    outcome = await play(tool, timeline, {"name": "a.html", "mime": mime})

    assert (outcome.status, outcome.artifacts) == ("error", ())
    assert "is not a type such as 'text/html'" in outcome.text


@pytest.mark.parametrize("mime", ["image/svg+xml", "text/csv; charset=utf-8", "application/vnd.ms-excel"])
async def test_usual_types_are_kept(tool, timeline, play, mime: str) -> None:
    (artifact,) = (await play(tool, timeline, {"name": "a.bin", "mime": mime})).artifacts

    assert artifact.mime == mime
