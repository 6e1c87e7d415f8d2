from typing import Any

from chat_proc.channels.streaming import ChannelOutput, CompositeRoute
from everturn.events.model import ChatDelta
from everturn.timeline.sources import Source
from everturn_sdk.channels import ChannelSpec

SOURCES = {1: Source(1, "One", "https://one.example")}


class Deltas(list[dict[str, Any]]):
    """An emit function that keeps what it gets and checks that it is a chat.delta event."""

    async def __call__(self, **delta: Any) -> None:
        ChatDelta(**delta)
        self.append(delta)


def output(spec: ChannelSpec, emit: Deltas, *, composite: CompositeRoute | None = None) -> ChannelOutput:
    return ChannelOutput(spec, emit=emit, artifact="report", sources=SOURCES, composite=composite)


async def write(channel: ChannelOutput, *texts: str, instance: int = 0) -> None:
    channel.open(instance)
    for text in texts:
        await channel.write(text)
    await channel.close(complete=True)


async def test_deltas_have_replaced_citations_and_the_result_has_not() -> None:
    emit = Deltas()
    channel = output(ChannelSpec("answer"), emit)

    await write(channel, "a [[S", ":1]] [[S:")

    assert [(delta["index"], delta["text"], delta["completed"]) for delta in emit] == [
        (0, "a ", False),
        (1, "[One](https://one.example) ", False),
        (2, "[[S:", False),
        (3, "", True),
    ]
    assert {(d["channel"], d["marker"], d["format"], d["artifact"]) for d in emit} == {
        ("answer", "answer", "markdown", "report")
    }
    assert channel.build_result().raw == "a [[S:1]] [[S:"
    assert channel.build_result().used_sources == [1]


async def test_each_occurrence_counts_its_deltas_and_starts_afresh() -> None:
    emit = Deltas()
    channel = output(ChannelSpec("answer"), emit)

    await write(channel, "```\n[[S:1]]", instance=0)
    await write(channel, "[[S:1]]", instance=1)

    assert [(d["instance"], d["index"], d["text"]) for d in emit] == [
        (0, 0, "```\n[[S:1]]"),
        (0, 1, ""),
        (1, 0, "[One](https://one.example)"),
        (1, 1, ""),
    ]
    assert [instance.raw for instance in channel.build_result().instances] == ["```\n[[S:1]]", "[[S:1]]"]


async def test_a_channel_that_is_not_shown_has_no_marker() -> None:
    emit = Deltas()

    await write(output(ChannelSpec("usage", emit_marker=None), emit), "x", "y")

    assert [(delta["text"], delta["marker"]) for delta in emit] == [("x", ""), ("y", ""), ("", "")]


async def test_a_composite_channel_also_streams_its_fields() -> None:
    emit = Deltas()
    route = CompositeRoute({"a": "text"}, "canvas", SOURCES, emit)
    channel = output(ChannelSpec("answer", "json"), emit, composite=route)

    await write(channel, '{"a": "x', ' [[S:1]]"}')

    fields = [(d["artifact"], d["text"]) for d in emit if d["marker"] == "canvas"]
    assert fields == [("a", "x"), ("a", " [One](https://one.example)"), ("a", "")]
    assert "".join(d["text"] for d in emit if d["marker"] == "answer") == '{"a": "x [[S:1]]"}'
    assert channel.build_result().obj == {"a": "x [[S:1]]"}
