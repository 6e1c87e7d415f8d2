"""A conversation of hundreds of turns: every request fits, what was said is found again, cost and memory stay flat.

LONG_CONVERSATION_TURNS makes it shorter or longer. The figures are printed (`make test TESTS=... ARGS=-s`).
"""

import json
import os
import resource
import time
from pathlib import Path

import pytest
from long_conversation.measure import RequestMeter, Sample
from long_conversation.model import CHARS_PER_TOKEN, MAX_READS, LongConversationModel, SideModel
from long_conversation.session import LongConversation, open_long_conversation
from long_conversation.tool import ReportTool
from long_conversation.workload import World, build_world

from everturn.core.metrics import PROMPT_BREAKS
from everturn_local.servers.databases import DatabaseUrls

TURNS = int(os.environ.get("LONG_CONVERSATION_TURNS", "100"))
FACTS = max(1, TURNS // 3)
CONTEXT_TOKENS = 80_000
SUMMARY = """## Active request
- Reports, one a turn.
## Done
- The reports so far.
## Critical facts
- Each turn asks for one report.
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_facts_of_a_very_long_conversation_are_found_by_few_reads(
    database: DatabaseUrls, redis_url: str, tmp_path: Path
) -> None:
    world = build_world(turns=TURNS, rounds=8, facts=FACTS)
    model, meter = LongConversationModel(world), RequestMeter(breaks=count_breaks)
    model.on_request = meter.take
    models = {"decision": model, "summary": SideModel(SUMMARY), "title": SideModel("Many reports")}

    async with open_long_conversation(database, redis_url, tmp_path, models=models, tools=[ReportTool(world)]) as chat:
        samples = [await work_through(chat, model, world, turn) for turn in range(1, TURNS + 1)]
        await chat.wait_for_index()
        searches = [await model.look_for(chat, fact, TURNS + n) for n, fact in enumerate(world.facts, start=1)]

    reads = [search.reads for search in searches]
    fifth = max(1, TURNS // 5)
    cpu_ratio = sum(s.cpu_s for s in samples[-fifth:]) / sum(s.cpu_s for s in samples[:fifth])
    memory_ratio = samples[-1].memory_bytes / samples[TURNS // 2].memory_bytes
    figures = {
        "requests": meter.requests,
        "tokens of the largest request, estimated": int(meter.most_chars / CHARS_PER_TOKEN),
        "share of input that is an unchanged prefix": round(meter.kept_share, 4),
        "declared breaks": meter.declared,
        "facts by reads needed": {n: reads.count(n) for n in sorted(set(reads))},
        "CPU of a turn, last fifth to first fifth": round(cpu_ratio, 2),
        "peak memory, end to middle": round(memory_ratio, 2),
    }
    print(json.dumps(figures, indent=1))  # noqa: T201 - the figures are for the one who runs it
    assert {s.fact.topic: s.steps for s in searches if s.found != s.fact.value} == {}
    assert max(reads) <= MAX_READS
    assert meter.most_chars / CHARS_PER_TOKEN <= CONTEXT_TOKENS
    assert meter.kept_share >= 0.9
    assert memory_ratio < 1.3


async def work_through(chat: LongConversation, model: LongConversationModel, world: World, turn: int) -> Sample:
    """One turn of the world, and what it cost."""
    model.begin(turn)
    began = time.process_time()
    ended = await chat.say(world.prompt(turn))
    assert ended.error is None, ended.error
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Sample(time.process_time() - began, peak_bytes)


def count_breaks() -> float:
    """Declared changes of what earlier requests held, so far."""
    samples = (sample for metric in PROMPT_BREAKS.collect() for sample in metric.samples)
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))
