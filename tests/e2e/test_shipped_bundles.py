"""The bundles that come with Everturn, as a stranger's: copied out of the repository and used in real turns."""

import asyncio
import json
import shutil
import signal
import zipfile
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.homes import copy_home
from helpers.waiting import wait_until

from everturn_client.canary import Canary
from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(60)]

ROOT = Path(__file__).resolve().parents[2]
BUNDLES, CANARY = ROOT / "bundles", ROOT / "deploy" / "canary"
WORKER = "worker-1"
READY = "SELECT count(*) FROM bundle WHERE seen_at > '-infinity' AND content IS NOT NULL"
INDEXED = "SELECT count(*) FROM knowledge_space WHERE bundle_id = 'librarian' AND state = 'ready'"
PROGRAM = """
import glob, os, sys
for skill in ("analyst.profile-table", "public.xlsx-press"):
    sys.path.insert(0, os.path.join(WORKDIR, "skills", skill, "scripts"))
import matplotlib.pyplot as plt
from profile_table import profile, read_table
from workbook import write_workbook

(path,) = glob.glob(os.path.join(WORKDIR, "turn_*/attachments/sales.csv"))
table = read_table(path)
print(profile(table))
out = os.path.join(OUTPUT_DIR, "outputs")
os.makedirs(out, exist_ok=True)
totals = table.groupby("region", as_index=False)["revenue"].sum()
write_workbook(os.path.join(out, "totals.xlsx"), {"Totals": totals}, totals=["revenue"])
totals.plot.bar(x="region", y="revenue")
plt.savefig(os.path.join(out, "totals.png"))
"""
TABLE = "day,region,revenue\n" + "".join(
    f"2026-01-{day:02},{region},{revenue}\n"
    for day, (region, revenue) in enumerate(
        [("North", 10), ("north ", 12), ("South", 11), ("South", ""), ("West", 9)], 1
    )
)


def act(**fields: Any) -> str:
    return f"<channel:action>{json.dumps(fields)}</channel:action>"


def call(tool_id: str, **params: Any) -> str:
    return act(action="call_tool", notes="", tool_call={"tool_id": tool_id, "params": params})


def final(text: str) -> str:
    return act(action="complete", notes="", final_answer=text)


def script(when: str, *replies: str) -> str:
    rounds = (f"[[scripts.rounds]]\nreply = '''{reply}'''\n" for reply in replies)
    return f"[[scripts]]\nwhen = '{when}'\n" + "".join(rounds)


CONTRACT = [
    {"filepath": f"outputs/{name}", "description": "The totals by region"} for name in ("totals.xlsx", "totals.png")
]
SCRIPTS = "".join(
    (
        script(
            "Totals by region",
            call("react.read", paths=["sk:analyst.profile-table"]),
            call("react.pull", paths=["sk:analyst.profile-table/", "sk:public.xlsx-press/"]),
            call("exec_tools.execute_code_python", contract=CONTRACT, prog_name="totals", timeout_s=120)
            + f"<channel:code>{PROGRAM}</channel:code>",
            final("North leads."),
        ),
        script(
            "How many days",
            call("react.search_knowledge", query="days without activity until conversations are erased", limit=3),
            call("react.read", paths=["ks:docs/privacy.md"]),
            final("All are kept, unless RETENTION_DAYS is set [[S:1]]."),
        ),
        script(
            "Credit",
            call("mcp.orders.find_order", number=1042),
            call("desk.credit", order=1042, amount=79, reason="It arrived broken."),
            final("Credited 79 euros for order 1042."),
            final("The note: 79 euros for order 1042."),
        ),
        script(
            "Too much", call("desk.credit", order=1044, amount=249, reason="Broken."), final("That is not possible.")
        ),
        script("Which orders", call("mcp.orders.list_orders", customer="weber"), final("1042 and 1043.")),
    )
)


class Accountants:
    """The server that gets the records of the desk."""

    def __init__(self) -> None:
        self.port = 0
        self.records: list[dict[str, Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        self.records.append(json.loads(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def accountants() -> AsyncIterator[Accountants]:
    opened = Accountants()
    async with await asyncio.start_server(opened.serve, "127.0.0.1", 0) as server:
        opened.port = server.sockets[0].getsockname()[1]
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    tmp_path_factory: pytest.TempPathFactory, make_harness: Any, accountants: Accountants
) -> AsyncIterator[Any]:
    home, files = copy_home(tmp_path_factory.mktemp("platform")), tmp_path_factory.mktemp("files")
    shutil.copytree(BUNDLES, files / "bundles")
    shutil.copytree(CANARY, files / "bundles" / "canary")
    (files / "scripts.toml").write_text(SCRIPTS)
    url = f"http://127.0.0.1:{accountants.port}/credits"
    (files / "everturn.toml").write_text(
        f'[bundles.desk.settings]\naccounting_url = "{url}"\n[bundles.canary]\nroles = ["registered"]\n'
    )
    env = {
        "EVERTURN_MODEL": f"scripted:{files / 'scripts.toml'}",
        "EVERTURN_CONFIG": str(files / "everturn.toml"),
        "BUNDLES_DIR": str(files / "bundles"),
        WORKER_BOUNDS: '{"lease_s": 2, "orphans_after_s": 4}',
    }
    async with Platform(
        home, ingresses=1, workers=1, env=env, durable=False, auto_restart=False, spawn=ForkingSpawn()
    ) as platform:
        await wait_until(lambda: platform.postgres.run_sql(READY, database=DATABASE) == "6")
        await wait_until(lambda: platform.postgres.run_sql(INDEXED, database=DATABASE) == "1")
        opened = make_harness(platform)
        yield opened
        await opened.quit()


async def run(harness: Any, bundle_id: str, text: str, *files: Path) -> Any:
    sent = await harness.clients[0].send_message("new", text, bundle_id=bundle_id, files=files)
    watcher = harness.watch(sent.conversation_id)
    turn = await watcher.wait_ended(sent.turn_id)
    await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()
    return turn


async def test_the_canary_gets_an_answer_without_a_model(harness: Any) -> None:
    async with aclosing(Canary(harness.clients[0], "canary", "Are you there?", limit_s=60)) as canary:
        reading = await canary.read()

    assert (reading.outcome, [*reading.seen_s]) == ("ok", ["accepted", "started", "answering", "ended"])


async def test_people_see_all_agents_with_starters(harness: Any) -> None:
    listed = {agent.id: agent for agent in await harness.clients[0].list_agents()}

    assert set(listed) == {"default", "analyst", "canary", "coder", "desk", "librarian"}
    assert listed["default"].is_default
    for name in ("analyst", "coder", "desk", "librarian"):
        assert listed[name].title and listed[name].description and listed[name].icon and listed[name].starters


async def test_the_analyst_profiles_a_table_and_returns_a_workbook_and_a_chart(harness: Any, tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text(TABLE)

    turn = await run(harness, "analyst", "Totals by region", tmp_path / "sales.csv")

    assert [step.status for step in turn.steps] == ["completed"] * 3, turn.steps
    said = turn.steps[2].result_preview
    assert "5 rows, 3 columns" in said
    assert "- revenue: 1 missing values" in said
    assert "- region: 1 values differ only in spaces or capitals" in said
    assert "day: dates from 2026-01-01" in said
    files = {file.filename: file for file in turn.files}
    assert set(files) == {"totals.xlsx", "totals.png"}
    workbook = await harness.clients[0].download(files["totals.xlsx"].artifact_id, tmp_path / "totals.xlsx")
    with zipfile.ZipFile(workbook) as parts:
        assert b"North" in b"".join(parts.read(name) for name in parts.namelist() if name.endswith(".xml"))


async def test_the_librarian_cites_the_handbook(harness: Any) -> None:
    turn = await run(harness, "librarian", "How many days are conversations kept?")

    searched, read = turn.steps
    assert "ks:docs/privacy.md" in searched.result_preview
    assert "`RETENTION_DAYS` is the number of days" in read.result_preview
    (cited,) = turn.citations
    assert cited.url.startswith("ks:docs/privacy.md")


async def test_the_desk_lists_orders_and_answers_once(harness: Any, accountants: Accountants) -> None:
    turn = await run(harness, "desk", "Which orders does Ann Weber have?")

    (step,) = turn.steps
    assert "1042" in step.result_preview and "1043" in step.result_preview
    assert (turn.outcome, turn.answer) == ("completed", "1042 and 1043.")
    assert accountants.records == []


async def test_the_widget_of_the_desk_gets_orders_from_an_operation(harness: Any) -> None:
    page = (BUNDLES / "desk" / "widgets" / "orders" / "index.html").read_text()
    (offered,) = await harness.clients[0].list_operations("desk")

    assert f'operation: "{offered.name}"' in page
    orders = await harness.clients[0].call_operation("desk", offered.name, {"customer": "tanaka"})
    assert [order["number"] for order in orders] == [1045]


async def test_the_desk_denies_a_large_credit(harness: Any) -> None:
    turn = await run(harness, "desk", "Too much")

    assert "An administrator credits more than 200 euros." in turn.steps[0].result_preview
    assert turn.files == ()


@pytest.mark.parametrize(
    "failpoint",
    [
        "turn.in_tool:1",
        "turn.after_step_end:2",
        pytest.param("turn.after_segment_end:1", marks=pytest.mark.slow),
        pytest.param("turn.before_c3:1", marks=pytest.mark.slow),
    ],
)
async def test_an_approved_credit_is_handed_over_once_although_its_worker_dies(
    harness: Any, accountants: Accountants, failpoint: str, tmp_path: Path
) -> None:
    accountants.records.clear()
    platform = harness.platform
    await platform.restart(WORKER, extra_env={"FAILPOINT": f"{failpoint}:kill"})
    sent = await harness.clients[0].send_message("new", "Credit order 1042: it is broken.", bundle_id="desk")
    watcher = harness.watch(sent.conversation_id)
    dying = asyncio.create_task(platform.wait_exit(WORKER))

    waiting = asyncio.create_task(
        watcher.wait_until(lambda seen: (turn := seen.turn(sent.turn_id)) and turn.status == "waiting")
    )
    await asyncio.wait({dying, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if dying.done():
        await platform.restart(WORKER)
    await waiting
    (approval,) = watcher.turn(sent.turn_id).approvals
    assert (approval.tool_id, approval.params["amount"]) == ("desk.credit", 79)
    await harness.clients[0].answer_approval(sent.conversation_id, approval.approval_id, "approve")
    if not dying.done():
        await dying
        await platform.restart(WORKER)
    assert dying.result() == -signal.SIGKILL
    turn = await watcher.wait_ended(sent.turn_id)

    assert (turn.outcome, turn.answer) == ("completed", "The note: 79 euros for order 1042.")
    answers = [text.text for text in turn.texts if text.channel == "answer"]
    assert answers == ["Credited 79 euros for order 1042.", "The note: 79 euros for order 1042."]
    (note,) = turn.files
    downloaded = await harness.clients[0].download(note.artifact_id, tmp_path / "credit.md")
    assert "Amount: 79.00 EUR" in downloaded.read_text()
    (record,) = accountants.records
    assert record["number"].startswith("C-")
    assert (record["orders"], record["note"]) == ([1042], "The note: 79 euros for order 1042.")
    state = await harness.check_invariants(sent.conversation_id, watcher)
    (judged,) = state.turns[0].feedback
    assert (judged.reaction, judged.origin) == ("ok", "machine")
    await harness.close()
