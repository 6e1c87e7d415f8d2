"""What does not depend on the codec: requests grow at their end, and a conversation stays whole when codecs change."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turn_harness.checks import check_conversation, flatten
from turn_harness.harness import Bench
from turn_harness.replies import answer_in, call_in
from turn_harness.tools import DemoTool

from everturn.core.metrics import PROMPT_BREAKS
from everturn.lifecycle.export_check import check_export
from everturn.models.port import CodecName, ModelRequest
from everturn.timeline.blocks import (
    BlockType,
    CompletionBody,
    PromptBody,
    RangeSummaryBody,
    SystemMessageBody,
    ToolResultBody,
)
from everturn_testing.lifecycle.exports import render_export
from everturn_testing.models.scripted_model import Script, ScriptedModel

CODECS: tuple[CodecName, ...] = ("channels", "native", "json")


def count_breaks(bench: Bench) -> float:
    """The breaks so far. A worker that begins with the last summary does not count that one, since it never rendered
    what came before."""
    summaries = sum(isinstance(block.body, RangeSummaryBody) for block in bench.blocks)
    samples = [sample for metric in PROMPT_BREAKS.collect() for sample in metric.samples]
    return summaries + sum(sample.value for sample in samples if sample.name.endswith("_total"))


class SteppingModel(ScriptedModel):
    """Takes the next step of a turn when it is called, and answers when none is left. `sent` are the number of the turn
    and that of the breaks declared so far, for each request."""

    def __init__(self, codec: CodecName) -> None:
        super().__init__(chunk_chars=1_000)
        self.bench: Bench | None = None
        self.steps: list[str] = []
        self.sent: list[tuple[int, float]] = []
        self._codec: CodecName = codec

    def generate(self, request: ModelRequest):
        assert self.bench is not None
        self.sent.append((len(self.bench.turn_rows), count_breaks(self.bench)))
        self.add(self._take_step(self.bench))
        return super().generate(request)

    def _take_step(self, bench: Bench) -> Script:
        step = self.steps.pop(0) if self.steps else "answer"
        results = [block.ref for block in bench.blocks if isinstance(block.body, ToolResultBody)]
        if step == "hide" and results:
            return call_in(self._codec, "react.hide", {"paths": results[-1:], "replacement": "hidden"})
        if step in ("short", "long"):
            return call_in(self._codec, "demo.echo", {"text": "word " * (400 if step == "long" else 4)})
        return answer_in(self._codec, "Done.")


async def play(codec: CodecName, turns: Sequence[tuple[str, ...]]) -> tuple[Bench, SteppingModel]:
    """A conversation in which each turn takes these steps; one that begins with a pause finds a cold cache."""
    model = SteppingModel(codec)
    bench = model.bench = Bench(model=model, tools=[DemoTool()], codec=codec, max_tokens=6_000)
    for steps in turns:
        if "pause" in steps:
            bench.clock.advance(3_600)
        model.steps = [step for step in steps if step != "pause"]
        await bench.say("Go on.")
        await bench.work()
    return bench, model


TURNS = st.lists(
    st.lists(st.sampled_from(["short", "long", "long", "hide", "pause"]), max_size=6).map(tuple), min_size=1, max_size=4
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(CODECS), TURNS)
async def test_a_request_is_a_prefix_of_the_next_one_until_a_break_is_declared(
    codec: CodecName, turns: list[tuple[str, ...]]
) -> None:
    bench, model = await play(codec, turns)

    requests = zip(model.requests, model.sent, strict=True)
    for (earlier, (turn, breaks)), (later, (next_turn, next_breaks)) in pairwise(requests):
        # With native calls, the rounds of an ended turn become part of the record of earlier turns.
        if breaks != next_breaks or (codec == "native" and turn != next_turn):
            continue
        stable = flatten(earlier.messages)[:-1]  # without ANNOUNCE; SOURCES POOL is empty
        assert flatten(later.messages)[: len(stable)] == stable
    await check_conversation(bench)


async def test_the_turns_of_these_tests_are_hidden_pruned_and_summarized() -> None:
    for codec in CODECS:
        bench, _ = await play(codec, [("long",) * 6, ("long", "short", "hide"), ("pause", "long"), ("pause",)])

        bodies = [block.body for block in bench.blocks]
        assert any(block.type is BlockType.HIDE for block in bench.blocks)
        assert any(isinstance(body, SystemMessageBody) for body in bodies)
        scopes = {body.scope for body in bodies if isinstance(body, RangeSummaryBody)}
        assert scopes == {"history", "turn"}, (codec, scopes)


async def test_a_conversation_whose_codec_changes_with_every_turn_is_exported_and_read_back() -> None:
    order: list[CodecName] = ["channels", "native", "json", "native", "channels", "json"]
    bench = Bench(tools=[DemoTool()])
    for n, codec in enumerate(order):
        bench.codec = codec
        bench.model.add(call_in(codec, "demo.echo", {"text": f"{n}"}), answer_in(codec, f"It is {n}."))
        await bench.say(f"Echo {n}.")
        await bench.work()

    report = check_export(render_export(bench.conversation_id, bench.blocks))
    assert (report.end.blocks, report.end.last_hash) == (len(bench.blocks), bench.blocks[-1].hash)

    texts = [
        (block.ref, block.body.text)
        for block in bench.blocks
        if isinstance(block.body, PromptBody | ToolResultBody | CompletionBody)
    ]
    read_back = 0
    for codec in CODECS:
        bench.codec = codec
        for ref, text in texts:
            bench.clock.advance(3_600)
            bench.model.add(call_in(codec, "react.read", {"paths": [ref]}), answer_in(codec, "Read."))
            await bench.say("Read it again.")
            await bench.work()
            *_, result = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
            assert result.status == "ok"
            read_back += text in result.text
            assert text in result.text or f"already shown in full in the block with the ref {ref}" in result.text
    assert read_back > len(texts)
    await check_conversation(bench)
