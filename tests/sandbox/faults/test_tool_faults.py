"""F21: a tool that hangs, raises, gives too much or gives a secret. The program gets a typed error and goes on."""

from dataclasses import replace

from turn_harness.programs import Act, ScriptedTool, build_parts

from chat_proc.catalog.tool import ToolCall, ToolContext, ToolOutcome
from chat_proc.tools.code.program_calls import ProgramCalls, ProgramTools, build_capability
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn.core.logging import Redactor
from everturn_testing.files.stored_files import OWNER
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW
from everturn_testing.turns.live_turn import RecordingTurn

SECRET = "sk-live-0123456789abcdef"
HUGE = "x" * (100 << 20)
PROGRAM = """
async def ask(tool):
    try: return await tool()
    except Exception as error: return error.code
for tool in (demo.hang, demo.fail, demo.flood, demo.leak, demo.fine):
    print(tool.__name__ if hasattr(tool, "__name__") else "", await ask(tool))
open(OUTPUT_DIR + "/kept", "w").write("kept")
"""


def give(value: str) -> Act:
    return lambda call: ToolOutcome("ok", value)


def fail(call: ToolCall) -> ToolOutcome:
    raise RuntimeError(f"the key {SECRET} was refused")


async def test_each_fault_is_a_typed_error_and_the_program_continues(run):
    hanging = ScriptedTool("demo.hang", timeout_s=0.5)
    hanging.hangs = True
    others = (("fail", fail), ("flood", give(HUGE)), ("leak", give(f"key={SECRET}")), ("fine", give("fine")))
    tools = ProgramTools(
        [hanging, *(ScriptedTool(f"demo.{name}", act) for name, act in others)],
        replace(build_parts(), redactor=Redactor([SECRET])),
    )
    context = ToolContext(
        OWNER, ConversationId("conv_1"), TurnId("turn_1"), 1, (), NOW, MemorySourcePool(), live=RecordingTurn()
    )
    calls = ProgramCalls(tools, ToolCall(CallId("call_1"), None, PROGRAM, context))

    result = await run(
        PROGRAM,
        outputs=("kept",),
        capability=build_capability(tools.specs, 30),
        call_tool=calls,
        timeout_s=30,
    )

    said = [line.split(" ", 1)[1] for line in result.user_out_tail.splitlines()]
    assert result.ok, result.report_text
    assert said[:3] == ["timeout", "tool_error", "too_large"]
    assert said[3].startswith("key=") and said[4] == "fine"
    assert SECRET not in result.user_out_tail + result.report_text + str(calls.records())
    assert hanging.cancelled == 1
    assert [record.error_code for record in result.record.calls] == ["timeout", "tool_error", "too_large", "", ""]
