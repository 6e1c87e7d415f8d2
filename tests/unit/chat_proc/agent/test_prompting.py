import json
import threading
from collections.abc import Sequence

import pytest
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool, FindTool

from chat_proc.agent import prompting
from chat_proc.timeline.view import Break, PromptRenderer
from everturn.core.identity import Principal
from everturn.core.metrics import PROMPT_BREAKS
from everturn.core.threads import ON_LOOP_SIZE
from everturn.memory.user_memories import UserMemory
from everturn.models.port import ModelRequest, ModelUsage, TextPart
from everturn.timeline.blocks import Block
from everturn.timeline.turns import TurnStatus
from everturn_testing.memory.user_memories_contract import remembered
from everturn_testing.models.scripted_model import Finish, Say


def texts(request: ModelRequest) -> list[str]:
    return [part.text for message in request.messages for part in message.parts if isinstance(part, TextPart)]


async def test_a_request_is_the_timeline_and_then_the_present() -> None:
    bench = Bench(call("demo.echo", {"text": "x"}), answer("Done."), tools=[DemoTool()])
    await bench.say("Hello.")

    await bench.work()

    first, second = (texts(request) for request in bench.model.requests)
    assert "Round 1/15" in first[-1]
    assert "Round 2/15" in second[-1]
    assert "tokens: 120 of" in second[-1]
    assert second[: len(first) - 1] == first[:-1]


async def test_each_request_bounds_the_reply() -> None:
    bench = Bench(answer("Done."))
    await bench.say("Hello.")

    await bench.work()

    assert bench.model.requests[0].max_output_tokens == bench.limits.max_output_tokens


async def play_turns(bench: Bench, turns: int) -> None:
    for number in range(turns):
        bench.clock.advance(10)
        await bench.say(f"Question {number}.")
        await bench.work()


async def test_after_a_pause_the_next_turn_shows_older_turns_short_and_says_so() -> None:
    bench = Bench(*(answer(f"Answer {n}. " + "word " * 1_000) for n in range(9)), answer("Done."), answer("Done."))
    await play_turns(bench, 9)
    warm = texts(bench.model.requests[-1])

    bench.clock.advance(400)
    await play_turns(bench, 2)

    cold, after = (texts(request) for request in bench.model.requests[-2:])
    assert not any("(pruned" in text for text in warm)
    assert any("(pruned)" in text for text in cold)
    assert sum("[system.message " in text for text in cold) == 1
    assert "[PRUNE NOTICES]\nolder turns are shown short" in cold[-1]
    assert after[: len(cold) - 1] == cold[:-1]


async def test_a_long_history_is_rendered_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[bool, bool]] = []

    class NotedRenderer(PromptRenderer):
        def take(self, blocks: Sequence[Block]) -> tuple[Break, ...]:
            is_long = sum(len(block.body_json) for block in blocks) > ON_LOOP_SIZE
            taken.append((is_long, threading.current_thread() is threading.main_thread()))
            return super().take(blocks)

    monkeypatch.setattr(prompting, "PromptRenderer", NotedRenderer)
    bench = Bench(*(answer("word " * 5_000) for _ in range(5)))

    await play_turns(bench, 5)

    assert set(taken) == {(True, False), (False, True)}


def count_breaks(reason: str) -> float:
    found = PROMPT_BREAKS.labels(reason).collect()
    return next(sample.value for metric in found for sample in metric.samples if sample.name.endswith("_total"))


async def test_every_break_is_counted_with_its_reason() -> None:
    bench = Bench(*(answer("word " * 2_000) for _ in range(4)))
    before = count_breaks("prune")
    await play_turns(bench, 3)
    assert count_breaks("prune") == before

    bench.clock.advance(400)
    await play_turns(bench, 1)

    assert count_breaks("prune") == before + 1


async def test_what_providers_count_teaches_the_estimate() -> None:
    usage = ModelUsage(input_tokens=20_000, output_tokens=20)
    bench = Bench([Say(answer("Done.")), Finish(usage=usage)])
    bench.clock.advance(1)
    await bench.say("word " * 8_000)

    await bench.work()

    assert bench.ratios.of(bench.model.traits.name).ratio < 3.4


async def test_sources_precede_announce_and_are_never_cached() -> None:
    bench = Bench(call("demo.find", {"urls": ["https://example.com/a"]}), answer("Done."), tools=[FindTool()])
    await bench.say("Hello.")

    await bench.work()

    first, second = bench.model.requests
    assert not any(text.startswith("[SOURCES POOL]") for text in texts(first))
    assert texts(second)[-2].startswith("[SOURCES POOL] ")
    parts = [part for message in second.messages for part in message.parts if isinstance(part, TextPart)]
    assert [part.cache_point for part in parts[-2:]] == [False, False]
    assert parts[-3].cache_point
    assert sum(part.cache_point for part in parts) <= 4


async def test_each_request_leaves_a_manifest_beside_the_turn() -> None:
    bench = Bench(call("demo.echo", {"text": "x"}), answer("Done."), tools=[DemoTool()])
    await bench.say("Hello.")

    await bench.work()

    folder = f"{bench.conversation_id}/manifests/{bench.turn_rows[0].id}"
    first, second = (json.loads(bench.objects.stored[f"{folder}.{number}"]) for number in (1, 2))
    assert [row["origin"] for row in first["segments"]] == ["system", "block", "block", "tail"]
    hashes = [
        [row["sha256"] for row in manifest["segments"] if row["origin"] != "tail"] for manifest in (first, second)
    ]
    assert hashes[1][: len(hashes[0])] == hashes[0]


async def test_a_store_that_is_down_fails_no_turn() -> None:
    bench = Bench(answer("Done."))
    bench.objects.down = True
    await bench.say("Hello.")

    await bench.work()

    assert bench.turn_rows[0].status is TurnStatus.COMPLETED


class Hotset:
    """Counts how often it is asked."""

    def __init__(self, *memories: UserMemory) -> None:
        self.memories = memories
        self.asked: list[Principal] = []

    async def load_hotset(self, principal: Principal) -> tuple[UserMemory, ...] | str:
        self.asked.append(principal)
        return self.memories or "memories are not available now"


async def test_a_turn_begins_with_the_memories_of_its_person_and_reads_them_once() -> None:
    hotset = Hotset(remembered("Prefers metric units.", pinned=True))
    bench = Bench(call("demo.echo", {"text": "x"}), answer("Done."), tools=[DemoTool()], hotset=hotset)
    await bench.say("Hello.")

    await bench.work()

    tails = [texts(request)[-1] for request in bench.model.requests]
    assert all("[USER MEMORY HOTSET]" in tail and "pinned #label: Prefers metric units." in tail for tail in tails)
    assert len(hotset.asked) == 1


async def test_a_failure_of_durable_memory_is_reported() -> None:
    without, failing = Bench(answer("Done.")), Bench(answer("Done."), hotset=Hotset())
    for bench in (without, failing):
        await bench.say("Hello.")
        await bench.work()

    assert "HOTSET" not in texts(without.model.requests[0])[-1]
    assert "[USER MEMORY HOTSET]\nunavailable: memories are not available now" in texts(failing.model.requests[0])[-1]
