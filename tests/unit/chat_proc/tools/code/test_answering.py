"""How calls of one run share a worker, and what becomes of tools that don't listen. The replies: see test_calls."""

import asyncio

from turn_bench.programs import build_parts
from turn_bench.tools import DeafTool, DemoTool

from chat_proc.tools.code.answering import MAX_SIDE_BY_SIDE, ProgramParts, ProgramTools, RunAnswerer
from everturn.cancellation import Stragglers
from everturn.model.ids import CallId, ConversationId, TurnId
from everturn.ports.runs.effects import EffectKey
from everturn.ports.tool import ToolContext
from everturn.testing.stored_files import OWNER
from everturn.testing.timelines import NOW
from everturn.testing.turns.live_turn import RecordingTurn
from everturn.wire.execution import GatewayCall, ToolReply


def build_answerer(tool: DemoTool, parts: ProgramParts) -> RunAnswerer:
    context = ToolContext(OWNER, ConversationId("conv_1"), TurnId("turn_1"), 1, (), NOW, live=RecordingTurn())
    return RunAnswerer(ProgramTools([tool], parts), context)


async def ask(answerer: RunAnswerer, number: int = 1) -> ToolReply:
    key = EffectKey(TurnId("turn_1"), CallId("call_1"), "demo.echo", "a" * 64, number)
    given = await answerer.answer(GatewayCall(number, "demo.echo", {}), key, CallId(f"call_1-{number}"))
    return given.reply


async def test_only_so_many_calls_of_a_run_work_at_a_time() -> None:
    tool = DemoTool(in_programs=True)
    tool.go_on.clear()
    answerer = build_answerer(tool, build_parts())

    asked = [asyncio.create_task(ask(answerer, number)) for number in range(MAX_SIDE_BY_SIDE + 3)]
    await tool.started.wait()
    await asyncio.sleep(0)
    working = tool.calls.total()
    tool.go_on.set()
    replies = await asyncio.gather(*asked)

    assert working == MAX_SIDE_BY_SIDE
    assert [reply.ok for reply in replies] == [True] * (MAX_SIDE_BY_SIDE + 3)


async def test_a_tool_that_ignores_its_end_is_left_behind_and_the_program_is_answered() -> None:
    tool = DeafTool(timeout_s=0.01, in_programs=True)
    tool.go_on.clear()
    leftovers = Stragglers(grace_s=0.01)
    parts = build_parts()
    answerer = build_answerer(tool, ProgramParts(parts.ledger, leftovers))

    reply = await ask(answerer)

    assert (reply.error_code, leftovers.count) == ("timeout", 1)
    tool.go_on.set()
    await leftovers.close(1.0)
