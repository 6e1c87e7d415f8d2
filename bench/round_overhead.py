"""P12: CPU of a round of the agent loop with a model that answers at once and one trivial tool, against other agents.

Ours runs real turns with rows and events in memory: rendering, reading the reply, checks, the tool, blocks and events
are counted, the database and Redis are not. `make bench-peers` adds the agents of pydantic-ai and langgraph, which keep
their messages in memory (`bench/peers/take_turns.py`), from the environments that BENCH_PEERS names. Needs nothing
running.
"""

import asyncio
import itertools
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path

from helpers.goals import Goal, build_goal, measure_medians, run_goals
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from everturn.core.logging import configure_logging
from everturn.models.port import ModelPiece, ModelRequest
from everturn.timeline.turns import TurnStatus
from everturn_testing.models.scripted_model import ScriptedModel

ROUNDS = 50
EARLY, LATE = slice(2, 7), slice(43, 48)
"""The rounds around the 5th; and the last ones before the 50th, whose tool result no round reads any more."""
WARMUPS = 2
LIMIT_S = 60.0
PEERS = {"pydantic-ai": "pydantic_ai_turns", "langgraph": "langgraph_turns"}
"""By their environment."""


class TimedModel(ScriptedModel):
    """Notes this process's CPU time at each call."""

    def __init__(self, rounds: int) -> None:
        calls = [call("demo.echo", {"text": "again"})] * (rounds - 1)
        super().__init__([*calls, answer("Done.")], chunk_chars=1_000)
        self.called_at_s: list[float] = []

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        self.called_at_s.append(time.process_time())
        async with aclosing(super().generate(request)) as pieces:
            async for piece in pieces:
                yield piece


class QuietBench(Bench):
    """Keeps no snapshots, which tests compare and which grow with the turn."""

    def keep_snapshot(self) -> None: ...


def measure(samples: int) -> list[Goal]:
    configure_logging("warning", "json")
    return asyncio.run(measure_with(samples))


async def measure_with(samples: int) -> list[Goal]:
    rounds_ms: list[list[float]] = []

    async def ours_ms() -> float:
        rounds_ms.append(await run_turn())
        return statistics.fmean(rounds_ms[-1])

    async with AsyncExitStack() as stack:
        subjects: list[Callable[[], object]] = [ours_ms]
        names = PEERS if os.environ.get("BENCH_PEERS") else ()
        for name in names:
            peer = await start_peer(stack, name)
            subjects.append(partial(run_peer, peer))
        ours, *others = await measure_medians(subjects, samples, warmups=WARMUPS)
    counted = rounds_ms[WARMUPS:]
    early, late = (statistics.median(each for turn in counted for each in turn[rounds]) for rounds in (EARLY, LATE))
    return [
        *(
            build_goal(f"P12 CPU of a round vs {name}, ms", ours, theirs, 0.2)
            for name, theirs in zip(names, others, strict=True)
        ),
        build_goal(f"P12 CPU of a round, the {ROUNDS}th vs the 5th, ms", late, early, 1.2),
    ]


async def run_turn() -> list[float]:
    """Milliseconds of each round but the last, from one call of the model to the next."""
    model = TimedModel(ROUNDS)
    bench = QuietBench(model=model, tools=[DemoTool()], limits=TurnLimits(rounds=ROUNDS))
    await bench.say("Go on.")
    await bench.work()
    assert bench.turn_rows[0].status is TurnStatus.COMPLETED and len(model.called_at_s) == ROUNDS
    starts = model.called_at_s
    return [1e3 * (later - earlier) for earlier, later in itertools.pairwise(starts)]


async def start_peer(stack: AsyncExitStack, name: str) -> asyncio.subprocess.Process:
    peers = Path(os.environ["BENCH_PEERS"])
    process = await asyncio.create_subprocess_exec(
        str(peers / name / "bin" / "python"),
        "-W",
        "ignore",
        str(Path(__file__).parent / "peers" / "take_turns.py"),
        PEERS[name],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"LANGSMITH_TRACING": "false"},
    )
    stack.push_async_callback(process.wait)
    stack.callback(process.terminate)
    return process


async def run_peer(process: asyncio.subprocess.Process) -> float:
    """Milliseconds of a round of a turn."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{ROUNDS}\n".encode())
    async with asyncio.timeout(LIMIT_S):
        return 1e3 * float(await process.stdout.readline()) / ROUNDS


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, samples=20))
