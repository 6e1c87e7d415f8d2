import json
from collections.abc import Mapping
from typing import Any

import pytest

from chat_proc.channels.streaming import CompositeJsonArtifactStreamer
from everturn.events.model import ChatDelta
from everturn.timeline.sources import Source

SOURCES = {1: Source(1, "One", "https://one.example")}


async def stream(
    text: str, *, size: int = 1_000_000, artifacts: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = []

    async def emit(**delta: Any) -> None:
        ChatDelta(**delta)
        deltas.append(delta)

    streamer = CompositeJsonArtifactStreamer(emit=emit, artifacts=artifacts, instance=2, sources=SOURCES)
    for start in range(0, len(text), size):
        await streamer.feed(text[start : start + size])
    await streamer.finish()
    return deltas


def joined(deltas: list[dict[str, Any]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for delta in deltas:
        texts[delta["artifact"]] = texts.get(delta["artifact"], "") + delta["text"]
    return texts


async def test_each_field_streams_under_its_name_and_is_completed() -> None:
    deltas = await stream('{"title": "A\\nB", "rows": [1, {"x": "y"}], "n": 3}')

    assert joined(deltas) == {"title": "A\nB", "rows": '[1, {"x": "y"}]', "n": "3"}
    assert [(d["artifact"], d["format"]) for d in deltas if d["completed"]] == [
        ("title", "markdown"),
        ("rows", "json"),
        ("n", "json"),
    ]
    assert {(d["channel"], d["instance"], d["marker"]) for d in deltas} == {("answer", 2, "canvas")}


async def test_only_the_declared_fields_stream_in_their_formats() -> None:
    text = '{"a": "x [[S:1]]", "b": "hidden", "c": "y [[S:1]]", "nested": {"a": "no"}}'

    deltas = await stream(text, artifacts={"a": "html", "c": "path.to.schema"})

    assert joined(deltas).keys() == {"a", "c"}
    assert joined(deltas)["a"].startswith('x <sup class="cite"')
    assert joined(deltas)["c"] == "y [One](https://one.example)"
    assert {d["artifact"]: d["format"] for d in deltas} == {"a": "html", "c": "markdown"}


async def test_indexes_count_from_zero_in_each_field() -> None:
    deltas = await stream('{"a": "xy", "b": "z"}', size=1)

    assert [(d["artifact"], d["index"], d["text"]) for d in deltas] == [
        ("a", 0, "x"),
        ("a", 1, "y"),
        ("a", 2, ""),
        ("b", 0, "z"),
        ("b", 1, ""),
    ]


async def test_a_field_that_breaks_off_is_completed_with_what_it_has() -> None:
    deltas = await stream('{"a": "half [[S:')

    assert joined(deltas) == {"a": "half [[S:"}
    assert deltas[-1]["completed"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
async def test_every_cut_streams_the_same_text(size: int) -> None:
    text = json.dumps({"a": "caf\u00e9 \U0001f600 \\ [[S:1]]", "b": ["x", [{}]], "": "no name"})

    deltas = await stream(text, size=size)

    assert joined(deltas) == joined(await stream(text))
    assert joined(deltas)["a"] == "caf\u00e9 \U0001f600 \\ [One](https://one.example)"
    assert sum(d["completed"] for d in deltas) == 3
