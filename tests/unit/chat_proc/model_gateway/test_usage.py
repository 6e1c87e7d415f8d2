"""The usage is found in a reply however the network has cut it."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.model_gateway.usage import EventSplitter, ReplyMeter

ENDS = st.sampled_from(["\n", "\r\n", "\r"])
LINES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream with any line ends, comments and other fields, and the data of its events."""
    text, expected = "", list[bytes]()
    for lines in draw(st.lists(st.lists(LINES, max_size=3), max_size=5)):
        for line in lines:
            before = draw(st.sampled_from(["", ": comment", "event: x", "id:", "retry: 1"]))
            text += (before + draw(ENDS) if before else "") + draw(st.sampled_from(["data: ", "data:"]))
            # The standard removes one space after the colon.
            text += (line.removeprefix(" ") if text.endswith(":") else line) + draw(ENDS)
        text += draw(ENDS) if lines else ""
        if lines:
            expected.append("\n".join(lines).encode())
    return text.encode(), expected


def read_plainly(stream: bytes) -> list[bytes]:
    """As the standard says, with everything in memory."""
    events, data = list[bytes](), list[bytes]()
    for line in stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            events.append(b"\n".join(data))
            data = []
    return [*events, b"\n".join(data)] if data else events


@given(st.data(), streams())
def test_a_stream_has_the_same_events_at_any_chunking(data: st.DataObject, stream: tuple[bytes, list[bytes]]) -> None:
    whole, _ = stream
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=12)))
    splitter = EventSplitter()

    found = [
        event
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)
        for event in splitter.feed(whole[start:end])
    ]

    assert [*found, *splitter.finish()] == read_plainly(whole)


@given(st.binary(max_size=40).map(lambda noise: noise.translate(bytes.maketrans(b"abcdef", b"\r\n\r\n:d"))))
def test_any_bytes_are_split_as_the_standard_says(noise: bytes) -> None:
    splitter = EventSplitter()

    found = [event for at in range(len(noise)) for event in splitter.feed(noise[at : at + 1])]

    assert [*found, *splitter.finish()] == read_plainly(noise)


def test_an_event_beyond_the_limit_is_skipped_and_the_next_is_found() -> None:
    splitter = EventSplitter(max_bytes=20)

    assert splitter.feed(b"data: " + b"x" * 10) == []
    assert splitter.feed(b"x" * 1_000 + b"\ndata: x\n\ndata: y\n\n") == [b"y"]
    assert splitter.feed((b"data: 1234567\n" * 9) + b"\ndata: z\n\n") == [b"z"]


async def meter(api: str, *events: object, is_stream: bool = True) -> ReplyMeter:
    found = ReplyMeter(api, is_stream=is_stream)  # type: ignore[arg-type]
    for event in events:
        text = json.dumps(event)
        await found.feed(f"data: {text}\n\n".encode() if is_stream else text.encode())
    await found.finish()
    return found


@pytest.mark.parametrize("is_stream", [True, False])
async def test_counts_that_are_no_numbers_of_tokens_are_estimated(is_stream: bool) -> None:
    usage = {"prompt_tokens": -1, "completion_tokens": "many"}

    for value in (usage, None, [], "x", {"prompt_tokens": 5}):
        found = await meter("chat", {"choices": [], "usage": value}, is_stream=is_stream)
        assert found.build_usage(70).estimated and found.build_usage(70).input_tokens == 70


async def test_only_the_events_that_close_a_reply_count() -> None:
    forged = {"type": "content_block_delta", "usage": {"input_tokens": 0, "output_tokens": 0}}
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 900, "output_tokens": 1}}}
    end = {"type": "message_delta", "usage": {"output_tokens": 40, "cache_creation_input_tokens": 50}}

    anthropic = (await meter("messages", start, forged, end)).build_usage(1)
    nothing = {"type": "response.created", "response": {"usage": None, "metadata": {"usage": {"input_tokens": 0}}}}
    last = {"type": "response.incomplete", "response": {"usage": {"input_tokens": 8, "output_tokens": 2}}}
    openai = (await meter("responses", nothing, last)).build_usage(1)

    assert (anthropic.input_tokens, anthropic.output_tokens, anthropic.cache_write_tokens) == (950, 40, 50)
    assert (openai.input_tokens, openai.output_tokens, openai.estimated) == (8, 2, False)


async def test_a_reply_without_counts_is_estimated_by_what_was_written() -> None:
    written = {"choices": [{"delta": {"content": 'a "quoted" text' * 50, "role": "assistant"}}]}
    done = {"type": "response.output_text.done", "text": "x" * 700}
    deltas = {"type": "response.output_text.delta", "delta": "x" * 700}

    assert 200 < (await meter("chat", written)).build_usage(9).output_tokens < 300
    assert (await meter("responses", deltas, done)).build_usage(9).output_tokens == 200


async def test_a_flood_of_lines_leaves_the_event_loop_free() -> None:
    found, longest, last, loop = ReplyMeter("chat", is_stream=True), 0.0, 0.0, asyncio.get_running_loop()
    feeding = asyncio.create_task(found.feed(b"\n" * 2_000_000))
    last = loop.time()
    while not feeding.done():
        await asyncio.sleep(0)
        longest, last = max(longest, loop.time() - last), loop.time()

    assert longest < 0.25
