"""P20: how much longer a call of a bundle's tool takes in the process of its bundle than in the worker itself.

An async function and a plain one, which runs in a thread, are called one after another: with arguments that are checked
already, until the outcome is there. The rows show the medians; the overhead is their difference. Needs nothing running.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop
from helpers.goals import Goal, build_goal, run_goals

from chat_proc.bundles.host.environments import Environments
from chat_proc.bundles.host.host import open_bundle_host
from chat_proc.bundles.host.host_process import BundleCode, HostOptions
from chat_proc.catalog.described import DescribedTool, FunctionTool
from chat_proc.catalog.tool import Tool, ToolCall, ToolContext
from chat_proc.tools.hosted import build_hosted_tools
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.stored_files import OWNER
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW
from everturn_testing.turns.live_turn import RecordingTurn

MAX_OVERHEAD_MS = 0.5
WARMUPS = 200
FILES = {
    "tools_descriptor.py": b'TOOLS_SPECS = [{"ref": "desk.py", "alias": "desk"}]',
    "desk.py": b'''
from everturn_sdk import tool

@tool(effect="pure")
async def find(name: str, limit: int = 3) -> dict[str, object]:
    """Finds."""
    return {"name": name, "limit": limit}

@tool(effect="pure")
def count(name: str, limit: int = 3) -> dict[str, object]:
    """Counts."""
    return {"name": name, "limit": limit}
''',
}


async def find(name: str, limit: int = 3) -> dict[str, object]:
    """Finds."""
    return {"name": name, "limit": limit}


def count(name: str, limit: int = 3) -> dict[str, object]:
    """Counts."""
    return {"name": name, "limit": limit}


def measure(calls: int) -> list[Goal]:
    return uvloop.run(measure_calls(calls))


async def measure_calls(calls: int) -> list[Goal]:
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder, ThreadPoolExecutor(1) as threads:
        options = HostOptions(Environments(Path(folder)))
        async with open_bundle_host(BundleCode("desk", "0" * 64, FILES), options) as host:
            hosted = {tool.spec.tool_id: tool for tool in build_hosted_tools(host, MemoryObjects(), ())}
            for function, what in ((find, "an async function"), (count, "a plain function")):
                tool_id = f"desk.{function.__name__}"
                inside = FunctionTool(tool_id, function, DescribedTool(), threads)
                ours, baseline = await time_calls(hosted[tool_id], calls), await time_calls(inside, calls)
                goals.append(build_goal(f"a call of {what}, median, ms", ours, baseline))
                overhead = ours - baseline
                goals.append(
                    build_goal(f"P20 overhead of it against {MAX_OVERHEAD_MS} ms, ms", overhead, MAX_OVERHEAD_MS, 1.0)
                )
    return goals


async def time_calls(tool: Tool, calls: int) -> float:
    """Median in milliseconds."""
    context = ToolContext(
        OWNER, ConversationId("conv_1"), TurnId("turn_1"), 1, (), NOW, MemorySourcePool(), live=RecordingTurn()
    )
    call = ToolCall(CallId("call_1"), tool.spec.params.model_validate({"name": "Ann"}), None, context)
    run: Callable[[ToolCall], Awaitable[object]] = tool.run
    times: list[float] = []
    for number in range(WARMUPS + calls):
        began = time.perf_counter()
        await run(call)
        if number >= WARMUPS:
            times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, calls=3_000))
