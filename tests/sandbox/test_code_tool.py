"""The code tool over the real sandbox: a file of the conversation in, a chart and a table out."""

import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from turn_harness.programs import build_program_tools

from chat_proc.catalog.tool import ToolCall, ToolContext
from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.local_supervisor import load_environment_digest
from chat_proc.sandbox.receipt_command import compare_files
from chat_proc.sandbox.receipts import ReceiptSigner, verify_receipt
from chat_proc.skills.reader import load_platform_skills
from chat_proc.tools.code.run_code import RunCodeParams, RunCodeTool
from chat_proc.tools.workspace.checkout import PullParams, PullTool
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.clock import SystemClock
from everturn.core.identity import Principal
from everturn.core.ids import CallId, ConversationId
from everturn.core.logging import Redactor
from everturn.execution.profiles import Profiles
from everturn.skills.model import Skills
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW, TimelineBuilder, build_file
from everturn_testing.turns.live_turn import RecordingTurn

PYTHON = Path(__file__).parents[2] / ".venv-sandbox" / "bin" / "python"
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


REPORT = """
import os, sys
sys.path.insert(0, os.path.join(WORKDIR, "skills/public.pdf-press/scripts"))
from pypdf import PdfReader
from report import build_pdf

path = os.path.join(OUTPUT_DIR, "outputs/report.pdf")
os.makedirs(os.path.dirname(path), exist_ok=True)
build_pdf(path, "# Sales\\n\\nUp by **8 %**.")
print(PdfReader(path).pages[0].extract_text())
"""


def build_context(timeline: TimelineBuilder) -> ToolContext:
    return ToolContext(
        principal=Principal("acme", "main", "ann"),
        conversation_id=ConversationId("conv_1"),
        turn_id=timeline.turn_id,
        round=1,
        blocks=timeline.blocks,
        now=NOW,
        pool=MemorySourcePool(),
        live=RecordingTurn(),
        skills=Skills(load_platform_skills()),
    )


async def test_a_program_imports_the_script_of_a_pulled_skill(sandbox: SupervisedSandbox) -> None:
    history = WorkspaceHistory(MemoryArtifacts(MemoryPlatform()))
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "A PDF, please")
    params = PullParams(paths=["sk:public.pdf-press/"])
    pulled = await PullTool(history).run(ToolCall(CallId("call_1"), params, None, build_context(timeline)))
    timeline.result("call_1", "react.pull", pulled.text, data=pulled.data)

    code = RunCodeTool(sandbox, MemoryObjects(), history, build_program_tools())
    wanted = RunCodeParams.model_validate({"contract": [{"filepath": "outputs/report.pdf"}]})
    outcome = await code.run(ToolCall(CallId("call_2"), wanted, REPORT, build_context(timeline)))

    assert outcome.status == "ok", outcome.text
    assert "Up by 8 %." in outcome.text
    assert [artifact.mime for artifact in outcome.artifacts] == ["application/pdf"]


async def test_a_call_runs_with_the_limits_of_its_profile_and_says_so(
    sandbox: SupervisedSandbox, profiles: Profiles
) -> None:
    offered = {"default": profiles["default"], "brief": profiles["brief"]}
    history = WorkspaceHistory(MemoryArtifacts(MemoryPlatform()))
    tool = RunCodeTool(sandbox, MemoryObjects(), history, build_program_tools(), offered)
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Compute it")

    async def run(profile: str, program: str) -> tuple[str, dict[str, Any]]:
        params = tool.spec.params.model_validate({"profile": profile})
        outcome = await tool.run(ToolCall(CallId(f"call_{profile}"), params, program, build_context(timeline)))
        return outcome.text, dict(outcome.data or {})["run"]

    take = "x = bytearray(300 << 20)\nprint('it fits')\n"
    roomy, default = await run("default", take)
    _, small = await run("brief", take)
    _, brief = await run("brief", "while True: pass")

    assert "it fits" in roomy
    assert (default["record"]["profile"], small["record"]["profile"]) == ("default", "brief")
    assert small["error"]["code"] == "memory_limit"
    assert small["record"]["limits"]["memory_bytes"] == profiles["brief"].limits.memory_bytes
    assert (brief["error"]["code"], brief["record"]["timeout_s"]) == ("timeout", 2)


async def test_a_csv_becomes_a_chart_and_a_table_with_a_receipt(sandbox: SupervisedSandbox, tmp_path: Path) -> None:
    objects = MemoryObjects()
    file = build_file("turn_1", "sales.csv", CSV, mime="text/csv")
    await objects.save(file.object_key, CSV)
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Chart it", file)
    contract = [{"filepath": "outputs/by_month.png"}, {"filepath": "outputs/by_month.csv"}]
    params = RunCodeParams.model_validate({"contract": contract})

    history = WorkspaceHistory(MemoryArtifacts(MemoryPlatform()))
    key = Ed25519PrivateKey.generate()
    signer = ReceiptSigner(key, SystemClock(), Redactor())
    if not sandbox.image:
        sandbox = sandbox.with_environment(await load_environment_digest(PYTHON))
    outcome = await RunCodeTool(sandbox, objects, history, build_program_tools(), receipts=signer).run(
        ToolCall(CallId("call_1"), params, PROGRAM, build_context(timeline))
    )

    assert outcome.status == "ok", outcome.text
    assert "{'Feb': 20, 'Jan': 15}" in outcome.text
    chart, table = outcome.artifacts
    assert (chart.mime, table.mime) == ("image/png", "text/csv")
    assert await objects.load(table.object_key, max_bytes=1000) == b"month,amount\nFeb,20\nJan,15\n"
    receipt = (outcome.data or {})["run"]["receipt"]
    payload = verify_receipt(json.dumps(receipt).encode(), {signer.key_id: key.public_key()})
    assert [file["path"] for file in payload["outputs"]] == ["outputs/by_month.png", "outputs/by_month.csv"]
    assert [file["path"] for file in payload["inputs"]] == ["turn_1/attachments/sales.csv"]
    assert (payload["outcome"], payload["backend"]) == ("ok", sandbox.posture.launcher)
    names = "executor_image", "supervisor_image", "environment"
    assert [str(payload[name])[:7] for name in names] == (
        ["sha256:", "sha256:", "None"] if sandbox.image else ["None", "None", "sha256:"]
    )
    for artifact in (chart, table):
        (tmp_path / artifact.filename).write_bytes(await objects.load(artifact.object_key, max_bytes=1 << 20))
    (tmp_path / "program").write_text(PROGRAM)
    assert set(compare_files(tmp_path, payload).values()) == {
        "the program",
        "output outputs/by_month.csv",
        "output outputs/by_month.png",
    }
