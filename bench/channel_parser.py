"""P11: what the channel parser with citations costs, compared with a loop that only appends and emits each chunk.

Ours is `stream_with_channels` over an instant model; the baseline reads the same model, appends, and awaits the same
emit with the same arguments. CPU time, medians of interleaved runs.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from helpers.goals import Goal, Sample, build_goal, measure_medians, run_goals

from chat_proc.channels.decision_stream import DecisionStream
from chat_proc.channels.streaming import stream_with_channels
from everturn.models.port import ModelPiece, ModelRequest, ModelTraits, ModelUsage, ReplyFinished, TextDelta
from everturn.timeline.sources import Source
from everturn_sdk.channels import ChannelSpec

CHUNK_SIZES = (1, 4, 16, 64)
REPLY_CHARS = 200_000
MAX_REPLY_CHARS = 10_000_000
RUNS = 7
MAX_RATIO = 6.0
MAX_GROWTH = 1.3
SOURCES = [Source(sid, f"Source {sid}", f"https://s{sid}.example/page") for sid in range(1, 41)]
SPECS = [
    ChannelSpec("thinking", replace_citations=False, emit_marker="thinking"),
    ChannelSpec("answer"),
    ChannelSpec("code", "code", emit_marker="subsystem"),
]
MESSAGES = [{"role": "user", "content": "go"}]


def measure() -> list[Goal]:
    return asyncio.run(measure_all())


async def measure_all() -> list[Goal]:
    """All rows. The last ones have no target: the agent's reader, which also decodes and checks the JSON of actions."""
    reply = build_reply(REPLY_CHARS, rounds=1)
    rows = [
        await compare(f"P11 chunks of {size}", run_ours(reply, size), run_floor(reply, size), MAX_RATIO)
        for size in CHUNK_SIZES
    ]
    large = build_reply(10 * REPLY_CHARS, rounds=1)
    rows.append(await compare("P11 10x the input", run_ours(large, 64), run_ours(reply, 64), MAX_GROWTH))
    few, many = build_reply(REPLY_CHARS, rounds=5), build_reply(10 * REPLY_CHARS, rounds=50)
    rows.append(await compare("P11 10x the instances", run_ours(many, 64), run_ours(few, 64), MAX_GROWTH))
    decision = build_decision(REPLY_CHARS)
    rows += [
        await compare(f"agent reader, chunks of {size}", run_decision(decision, size), run_floor(decision, size), None)
        for size in CHUNK_SIZES
    ]
    return rows


Run = tuple[Callable[[], Awaitable[None]], int]


async def compare(goal: str, ours: Run, baseline: Run, target: float | None) -> Goal:
    medians = await measure_medians([cpu_us(ours), cpu_us(baseline)], RUNS, warmups=1)
    return build_goal(f"{goal}, us a chunk", *medians, target)


def cpu_us(run: Run) -> Sample:
    """Microseconds of CPU a chunk."""
    play, chunks = run

    async def take() -> float:
        gc.collect()
        began = time.process_time()
        await play()
        return (time.process_time() - began) / chunks * 1e6

    return take


class InstantModel:
    """Yields ready pieces; it is also the service that chooses it."""

    traits = ModelTraits("instant", 1_000_000, images=False, documents=False)

    def __init__(self, reply: str, size: int) -> None:
        self.pieces = [TextDelta(reply[start : start + size]) for start in range(0, len(reply), size)]

    def model_for(self, role: str) -> "InstantModel":
        return self

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        for piece in self.pieces:
            yield piece
        yield ReplyFinished("stop", ModelUsage())


async def emit_nothing(
    *,
    channel: str,
    instance: int,
    index: int,
    text: str,
    completed: bool,
    marker: str,
    format: str,
    artifact: str | None,
) -> None:
    """Where deltas go."""


def run_ours(reply: str, size: int) -> Run:
    model = InstantModel(reply, size)

    async def run() -> None:
        await stream_with_channels(
            svc=model,
            messages=MESSAGES,
            role="bench",
            channels=SPECS,
            emit=emit_nothing,
            sources_list=SOURCES,
            max_reply_chars=MAX_REPLY_CHARS,
        )

    return run, len(model.pieces)


def run_floor(reply: str, size: int) -> Run:
    model = InstantModel(reply, size)

    async def run() -> None:
        written: list[str] = []

        async def on_piece(text: str) -> None:
            written.append(text)
            await emit_nothing(
                channel="answer",
                instance=0,
                index=len(written),
                text=text,
                completed=False,
                marker="answer",
                format="markdown",
                artifact=None,
            )

        async for piece in model.generate(ModelRequest((), 1)):
            if isinstance(piece, TextDelta):
                await on_piece(piece.text)
        "".join(written)

    return run, len(model.pieces)


def run_decision(reply: str, size: int) -> Run:
    model = InstantModel(reply, size)

    async def run() -> None:
        stream = DecisionStream(sources=SOURCES)
        async for piece in model.generate(ModelRequest((), 1)):
            if isinstance(piece, TextDelta):
                for _ in stream.feed(piece.text):
                    await emit_nothing(
                        channel="answer",
                        instance=0,
                        index=0,
                        text="",
                        completed=False,
                        marker="answer",
                        format="markdown",
                        artifact=None,
                    )
        if stream.finish()[1].fatal_problems:
            raise AssertionError("the reply of the bench is a good one")

    return run, len(model.pieces)


def build_reply(chars: int, *, rounds: int) -> str:
    """20 % thinking, 50 % answer with a citation about every 160 characters, 30 % code."""
    part = chars // rounds
    one = (
        f"<channel:thinking>\n{_prose(part // 5)}\n</channel:thinking>\n"
        f"<channel:answer>\n{_cited(part // 2)}\n</channel:answer>\n"
        f"<channel:code>\n{_code(part * 3 // 10)}\n</channel:code>\n"
    )
    return one * rounds


def build_decision(chars: int) -> str:
    """A final reply: 20 % thinking, 80 % an answer in the JSON of an action, with line breaks and quotes to escape."""
    action = {"action": "complete", "notes": "", "tool_call": None, "final_answer": _cited(chars * 4 // 5)}
    return (
        f"<channel:thinking>\n{_prose(chars // 5)}\n</channel:thinking>\n"
        f"<channel:action>\n{json.dumps(action)}\n</channel:action>\n<channel:code></channel:code>\n"
        "<channel:summary>Goal: measure</channel:summary>"
    )


def _prose(chars: int) -> str:
    line = "The user asks for a comparison, so I look at `both` tables first and then at their notes.\n"
    return (line * (chars // len(line) + 1))[:chars]


def _cited(chars: int) -> str:
    paragraphs = [
        f'The {number}th finding says that "growth" was steady in all regions, and that the margin held up well over '
        f"the year, as the report shows in detail [[S:{number % 40 + 1},{(number + 7) % 40 + 1}]].\n"
        for number in range(chars // 160)
    ]
    return "".join(paragraphs)


def _code(chars: int) -> str:
    line = "    if total < limit and rows[index] <= 10:\n        total += rows[index]\n"
    return (line * (chars // len(line) + 1))[:chars]


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure))
