"""The code tool over the real sandbox: a file of the conversation in, a chart and a table out."""

from turn_harness.programs import build_program_tools

from chat_proc.catalog.tool import ToolCall, ToolContext
from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.tools.code.run_code import RunCodeParams, RunCodeTool
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.identity import Principal
from everturn.core.ids import CallId, ConversationId
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW, TimelineBuilder, build_file
from everturn_testing.turns.live_turn import RecordingTurn

CSV = b"month,amount\nJan,10\nFeb,20\nJan,5\n"
PROGRAM = """
import os
import matplotlib.pyplot as plt
import pandas as pd

sales = pd.read_csv("turn_1/attachments/sales.csv")
by_month = sales.groupby("month")["amount"].sum()
os.makedirs(os.path.join(OUTPUT_DIR, "outputs"), exist_ok=True)
by_month.to_csv(os.path.join(OUTPUT_DIR, "outputs/by_month.csv"))
by_month.plot.bar()
plt.savefig(os.path.join(OUTPUT_DIR, "outputs/by_month.png"))
print(by_month.to_dict())
"""


async def test_a_csv_becomes_a_chart_and_a_table(sandbox: SupervisedSandbox) -> None:
    objects = MemoryObjects()
    file = build_file("turn_1", "sales.csv", CSV, mime="text/csv")
    await objects.save(file.object_key, CSV)
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Chart it", file)
    context = ToolContext(
        principal=Principal("acme", "main", "ann"),
        conversation_id=ConversationId("conv_1"),
        turn_id=timeline.turn_id,
        round=1,
        blocks=timeline.blocks,
        now=NOW,
        pool=MemorySourcePool(),
        live=RecordingTurn(),
    )
    contract = [{"filepath": "outputs/by_month.png"}, {"filepath": "outputs/by_month.csv"}]
    params = RunCodeParams.model_validate({"contract": contract})

    history = WorkspaceHistory(MemoryArtifacts(MemoryPlatform()))
    outcome = await RunCodeTool(sandbox, objects, history, build_program_tools()).run(
        ToolCall(CallId("call_1"), params, PROGRAM, context)
    )

    assert outcome.status == "ok", outcome.text
    assert "{'Feb': 20, 'Jan': 15}" in outcome.text
    chart, table = outcome.artifacts
    assert (chart.mime, table.mime) == ("image/png", "text/csv")
    assert await objects.load(table.object_key, max_bytes=1000) == b"month,amount\nFeb,20\nJan,15\n"
