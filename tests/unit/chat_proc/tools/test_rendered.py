"""Functions of the operator that return a file for the person."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from chat_proc.catalog.described import DescribedTool, FunctionTool, open_tool_threads
from chat_proc.catalog.tool import Rendered, Tool
from chat_proc.tools.rendered import RenderingTool
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.timeline import TimelineBuilder


def report(name: str) -> Rendered:
    """Renders a report."""
    return Rendered(name, "<h1>Sales</h1>", "text/html")


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
