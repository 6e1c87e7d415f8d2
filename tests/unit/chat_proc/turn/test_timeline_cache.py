import asyncio
import re
import tracemalloc
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.timeline.present import Present
from chat_proc.timeline.view import Break, PromptRenderer
from chat_proc.turn.timeline_cache import CachedTimeline, Rendering, TimelineCache, try_estimate_bytes
from chat_proc.worker.runner import MAX_ATTEMPTS
from everturn.core.ids import ConversationId, TurnId
from everturn.core.metrics import TIMELINES
from everturn.models.port import ModelPiece, ModelRequest, ModelTraits, encode_media
from everturn.timeline.blocks import (
    GENESIS_HASH,
    Block,
    BlockDraft,
    BlockType,
    RangeSummaryBody,
    ToolCallBody,
    chain_blocks,
    parse_body,
)
from everturn.timeline.turns import SignalKind, TurnStatus
from everturn_testing.models.scripted_model import ScriptedModel
from everturn_testing.timeline import TimelineBuilder, build_file

FIRST, SECOND = ConversationId("conv_a"), ConversationId("conv_b")
TRAITS = ModelTraits(name="m", context_tokens=200_000, images=True, documents=True)


def build_blocks(text: str = "Hello.") -> tuple[Block, ...]:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", text, build_file("turn_1", "photo.png", b"png", mime="image/png"))
    return tuple(timeline.blocks)


def build_timeline(last_hash: str = "a", text: str = "Hello.") -> CachedTimeline:
    return CachedTimeline(last_hash, build_blocks(text))


async def test_a_timeline_is_returned_once_and_only_with_its_last_hash() -> None:
    cache, timeline = TimelineCache(), build_timeline("a")
    cache.put(FIRST, timeline)
    cache.put(SECOND, build_timeline("b"))

    assert cache.pop(FIRST, "a") is timeline
    assert cache.pop(FIRST, "a") is None
    assert cache.pop(SECOND, "grown elsewhere") is None
    assert cache.pop(SECOND, "b") is None, "it can't become current again"


async def test_all_cached_timelines_together_are_bounded() -> None:
    size = try_estimate_bytes(build_timeline().blocks, max_bytes=1_000_000)
    assert size is not None
    cache = TimelineCache(max_bytes=5 * size)
    for n in range(6):
        cache.put(ConversationId(f"conv_{n}"), build_timeline())
    cache.put(SECOND, build_timeline(text="x" * size))

    assert cache.pop(ConversationId("conv_0"), "a") is None
    assert cache.pop(ConversationId("conv_1"), "a") is not None
    assert cache.pop(ConversationId("conv_5"), "a") is not None
    assert cache.pop(SECOND, "a") is None, "it alone is too large"


def test_the_size_of_parsed_json_is_not_underestimated() -> None:
    deep = {"v": [[[{}] * 20] * 20] * 20}
    (block,) = chain_blocks(
        [BlockDraft(TurnId("turn_1"), 1, BlockType.TOOL_CALL, "tc:1", ToolCallBody(tool_id="a", params=deep), "now")],
        next_seq=1,
        last_hash=GENESIS_HASH,
    )
    tracemalloc.start()
    parsed = parse_body(block.type, block.body_json)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert isinstance(parsed, ToolCallBody)
    assert (try_estimate_bytes([block], max_bytes=10_000_000) or 0) > used
    assert try_estimate_bytes([block], max_bytes=used) is None


async def test_a_timeline_expires() -> None:
    cache = TimelineCache(ttl_s=0)
    cache.put(FIRST, build_timeline())
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert cache.pop(FIRST, "a") is None


async def test_a_timeline_is_cached_without_the_bytes_of_its_images() -> None:
    renderer, blocks = PromptRenderer(system_prompt="You are helpful.", traits=TRAITS), build_blocks()
    renderer.take(blocks)
    renderer.attach({media.sha256: encode_media(b"png") for media in renderer.wanted_media})
    assert any(len(item.parts) > 1 for item in renderer.rendered)

    TimelineCache().put(FIRST, CachedTimeline("a", blocks, Rendering(renderer, Present())))

    assert all(len(item.parts) == 1 for item in renderer.rendered)


def count_loaded(kind: str) -> float:
    return TIMELINES.labels(kind)._value.get()  # pyright: ignore[reportPrivateUsage]


async def test_the_next_turn_on_the_same_worker_reads_no_blocks() -> None:
    bench = Bench()
    worker, other = bench.hire(), bench.hire()
    before = count_loaded("warm")

    for n, each in enumerate((worker, worker, other, worker)):
        bench.model.add(answer(f"Answer {n}."))
        await bench.say(f"Question {n}.")
        await each.work()

    assert count_loaded("warm") == before + 1, (
        "after the turn of the other worker, what this one cached is not the newest"
    )


async def test_after_a_history_summary_the_next_turn_loads_its_blocks() -> None:
    bench = Bench(model=TirelessModel(), max_tokens=9_000)
    worker = bench.hire()
    seen, expected, kinds = 0, "cold", list[tuple[str, str]]()

    for n in range(30):
        before = count_loaded("warm")
        await bench.say(f"Question {n}.")
        await worker.work()
        kinds.append(("warm" if count_loaded("warm") > before else "cold", expected))
        summaries = [block for block in bench.blocks[seen:] if isinstance(block.body, RangeSummaryBody)]
        seen, expected = len(bench.blocks), "cold" if summaries else "warm"

    assert all(kind == wanted for kind, wanted in kinds)
    assert ("cold", "cold") in kinds[1:], "no summary was made"


class TirelessModel(ScriptedModel):
    """Answers when its scripts are used up."""

    def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece]:
        if len(self.requests) >= len(self._scripts):
            self.add(answer("Done. " + "word " * 300))
        return super().generate(request)


async def test_a_rendering_that_failed_halfway_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(*, uses_cache: bool) -> str:
        bench = Bench(model=TirelessModel(), tools=[DemoTool()])
        worker = bench.hire()
        worker.may_crash = True
        await bench.say("First.")
        await worker.work()
        bench.model.add(call("demo.echo", {"text": "x"}))
        broken_turn = await bench.say("Second.")
        real = PromptRenderer.take

        def take_one(self: PromptRenderer, blocks: Sequence[Block]) -> tuple[Break, ...]:
            if not any(block.round and block.turn_id == broken_turn for block in blocks):
                return real(self, blocks)
            self.view.items.clear()
            raise RuntimeError("broken")

        with monkeypatch.context() as broken:
            broken.setattr(PromptRenderer, "take", take_one)
            for _ in range(MAX_ATTEMPTS + 1):
                await worker.run_one()
                bench.expire_lease()
        assert bench.turn_rows[-1].status is TurnStatus.FAILED
        await bench.say("Third.")
        await (worker if uses_cache else bench.hire()).work()
        # How often a worker reads the clock, which each reading advances, depends on its heartbeats.
        return re.sub(r"T[0-9:]{8}\.[0-9]{3}Z", "", repr(bench.model.requests[-1]))

    assert await play(uses_cache=True) == await play(uses_cache=False)


TURN = st.tuples(
    st.lists(
        st.sampled_from(
            [
                call("demo.echo", {"text": "x" * 2_000}),
                call("react.plan", {"mode": "new", "steps": ["one", "two"]}),
                call("react.write", {"path": "files/a.md", "channel": "canvas", "kind": "file", "content": "text"}),
                call("react.hide", {"refs": ["ar:turn_1.round.1.notes"], "replacement": "gone"}),
                "nonsense",
            ]
        ),
        max_size=3,
    ),
    st.sampled_from([1, 400]),
    st.sampled_from([None, "", "photo-1", "photo-2"]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TURN, min_size=2, max_size=4))
async def test_requests_do_not_depend_on_the_cache(turns: list[tuple[list[str], int, str | None]]) -> None:
    async def play(*, uses_cache: bool) -> list[ModelRequest]:
        bench = Bench(model=TirelessModel(), tools=[DemoTool()], tick_ms=0)
        worker = bench.hire()
        for replies, pause_s, photo in turns:
            bench.model.add(*replies)
            bench.clock.advance(pause_s)
            await bench.say("Go on.")
            if photo is not None:
                uploads = (replace(bench.upload("a.png", photo.encode()), mime="image/png"),) if photo else ()
                await bench.signal(SignalKind.FOLLOWUP, "And this.", uploads=uploads)
            await (worker if uses_cache else bench.hire()).work()
        return bench.model.requests

    assert await play(uses_cache=True) == await play(uses_cache=False)
