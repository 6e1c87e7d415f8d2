"""The main job as a new user does it: a CSV in, a chart and a table out, and a followup that remembers."""

import csv
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx2
import pytest
from documents.blocks import read_blocks
from documents.shell import Shell

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).resolve().parents[2]
CSV = (
    "date,region,revenue\n2026-01-03,North,240.50\n2026-01-09,South,140\n2026-02-02,North,499.95\n2026-02-11,West,400\n"
)


async def test_a_csv_becomes_a_chart_and_a_table_and_a_followup_remembers(demo_harness: Any, tmp_path: Path) -> None:
    client = demo_harness.clients[0]
    data = tmp_path / "sales.csv"
    data.write_text(CSV)

    sent = await client.send_message("new", "Total revenue by region, with a chart", files=[data])
    steady = demo_harness.watch(sent.conversation_id, ingress=0)
    cut = demo_harness.watch(sent.conversation_id, ingress=1, cuts=7)
    turn = await steady.wait_ended(sent.turn_id)

    assert turn.status == "completed"
    assert "740.45" in (turn.answer or "")
    files = {file.mime: file for file in turn.files}
    assert any(step.code and step.code_chars for step in turn.steps)
    chart = await client.download(files["image/png"].artifact_id, tmp_path / "chart.png")
    table = await client.download(files["text/csv"].artifact_id, tmp_path / "table.csv")
    assert chart.read_bytes().startswith(b"\x89PNG\r\n") and chart.stat().st_size > 3_000
    assert "North" in table.read_text()
    streamed = [text.text for text in turn.texts if text.channel == "answer"]
    assert streamed == [turn.answer]

    again = await client.send_message(sent.conversation_id, "What did I ask first?", time_zone="Asia/Tokyo")
    second = await steady.wait_ended(again.turn_id)

    assert "Total revenue by region" in (second.answer or "")
    await cut.wait_ended(again.turn_id)
    path = f"/conversations/default/default/{sent.conversation_id}/turns/{again.turn_id}/rounds/1/context"
    async with httpx2.AsyncClient(base_url=demo_harness.platform.urls[0], timeout=30) as http:
        context = await http.get(path)
    assert any("user timezone: Asia/Tokyo" in (segment["text"] or "") for segment in context.json()["segments"])
    await demo_harness.check_invariants(sent.conversation_id, steady, cut)
    assert cut.reconnects > 3
    await demo_harness.close()


async def test_the_commands_of_the_readme_work(demo_harness: Any, tmp_path: Path) -> None:
    typed = [block for block in read_blocks((ROOT / "README.md").read_text()) if block.language == "bash"]
    with (ROOT / "docs" / "sales.csv").open() as file:
        totals: dict[str, float] = defaultdict(float)
        for row in csv.DictReader(file):
            totals[row["region"]] += float(row["revenue"])
    env = {**os.environ, "EVERTURN_URL": demo_harness.platform.urls[0], "XDG_STATE_HOME": str(tmp_path)}

    async with Shell(ROOT, tmp_path, env) as newcomer:
        (printed,) = [await newcomer.play(block) for block in typed]

    for region, total in totals.items():
        assert region in printed
        assert f"{total:.2f}".rstrip("0").rstrip(".") in printed
