"""Skills as the tools show them: read whole, cited, pruned and read again, pulled for programs."""

import json

import pytest

from chat_proc.catalog.tool import ToolContext
from chat_proc.skills.reader import read_skills
from chat_proc.timeline.view import TimelineView
from chat_proc.tools.code.inputs import InputLoader
from chat_proc.tools.context.fetch_ctx import FetchCtxTool
from chat_proc.tools.context.hide import HideTool
from chat_proc.tools.context.read import ReadTool
from chat_proc.tools.context.resolve import ReadPorts
from chat_proc.tools.io import ListFilesTool, ReadFileTool
from chat_proc.tools.stored_files import load_local
from chat_proc.tools.workspace.checkout import CheckoutTool, PullTool
from chat_proc.tools.workspace.search import RgTool, SearchFilesTool
from chat_proc.workspace.description import describe_workspace
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core import refs
from everturn.core.ids import ConversationId
from everturn.skills.model import Skills
from everturn.skills.reader import MAX_SKILL_CHARS
from everturn.timeline import sources as sources_module
from everturn.timeline.blocks import BlockType, SystemMessageBody
from everturn.timeline.sources import SourceDraft
from everturn_testing.files.stored_files import OWNER
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW, TimelineBuilder
from everturn_testing.turns.live_turn import RecordingTurn

FRONT = "---\nname: {name}\ndescription: About {name}.\n---\n"
LONG = FRONT.format(name="long") + "x" * (MAX_SKILL_CHARS - 50)
CITED = FRONT.format(name="refunds") + "Pay within 14 days [[S:1]], see [[S:1,7]] and [[S:9]].\n"
FILES = {
    "skills/support/refunds/SKILL.md": CITED.encode(),
    "skills/support/refunds/scripts/sum.py": b"def total(rows):\n    return sum(rows)\n",
    "skills/support/refunds/references/law.md": b"line\n" * 10_000,
    "skills/support/refunds/assets/form.bin": b"\x00\x01\x02\x03",
    "skills/support/refunds/sources.yaml": (
        b"sources:\n- {url: 'https://law.example/1', title: The law}\n- {sid: 7, url: 'https://law.example/7'}\n"
    ),
    "skills/support/refunds/tools.yaml": b"tools:\n- {id: desk.find_order, role: lookup, why: Finds the order.}\n",
    "skills/support/long/SKILL.md": LONG.encode(),
    "skills/support/longer/SKILL.md": LONG.replace("long", "longer").encode(),
}
REF = "sk:support.refunds/SKILL.md"


@pytest.fixture
def skills() -> Skills:
    return read_skills(FILES)


@pytest.fixture
def timeline() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Refund this")
    timeline.start_round()
    return timeline


@pytest.fixture
def ports(tool_ports) -> ReadPorts:
    return ReadPorts(tool_ports.artifacts, tool_ports.reader, tool_ports.sources)


@pytest.fixture
def read(tool_ports, ports) -> ReadTool:
    return ReadTool(tool_ports.objects, tool_ports.attachments, ports)


@pytest.fixture
def history(stored) -> WorkspaceHistory:
    return WorkspaceHistory(stored.artifacts)


def is_whole(text: str, skill: str) -> bool:
    return FILES[f"skills/support/{skill}/SKILL.md"].decode().partition("---\n")[2] in text


@pytest.mark.parametrize("spelling", [REF, "sk:support.refunds", "sk:support.refunds/"])
async def test_a_skill_is_read_whole_with_what_belongs_to_it(play, timeline, read, spelling: str) -> None:
    outcome = await play(read, timeline, {"paths": [spelling]})

    assert outcome.status == "ok" and not outcome.untrusted
    assert outcome.text.startswith(f"{REF}: ") and ", shown whole; its sources: so:sources_pool[1-2]\n" in outcome.text
    assert "name: refunds\ndescription: About refunds.\n---\nPay within 14 days" in outcome.text
    assert "sk:support.refunds/scripts/sum.py (38 bytes)" in outcome.text
    assert "after a react.pull of sk:support.refunds/: skills/support.refunds/" in outcome.text
    assert "desk.find_order: lookup: Finds the order." in outcome.text


async def test_a_skill_is_not_cut_and_leaves_room_for_other_texts(play, timeline, read) -> None:
    timeline.answer("a" * 15_000)
    answer = "ar:turn_1.assistant.completion.1"
    law = "sk:support.refunds/references/law.md"

    outcome = await play(read, timeline, {"paths": [law, answer, "sk:support.long"]})

    assert is_whole(outcome.text, "long")
    assert outcome.text.startswith("sk:support.long/SKILL.md: ")
    assert f"{law}: 50000 characters, 10000 lines; shown lines [1-2400]/10000" in outcome.text
    assert len(outcome.text) < read.spec.result_chars


async def test_skills_that_are_too_long_together_are_read_one_by_one(play, timeline, read) -> None:
    outcome = await play(read, timeline, {"paths": ["sk:support.long", "sk:support.longer", "sk:support.refunds"]})

    assert is_whole(outcome.text, "long") and not is_whole(outcome.text, "longer")
    assert "sk:support.longer/SKILL.md: not shown: this call has no room for it; read it in another one" in outcome.text
    assert "Pay within 14 days" in outcome.text
    assert is_whole((await play(read, timeline, {"paths": ["sk:support.longer"]})).text, "longer")


async def test_a_part_or_the_size_of_a_skill_is_shown_on_request(play, timeline, read) -> None:
    outcome = await play(read, timeline, {"items": [{"path": REF, "line_start": 2, "line_count": 1}]})
    assert "name: refunds" in outcome.text and "Pay within" not in outcome.text

    outcome = await play(read, timeline, {"paths": [REF], "stats_only": True})
    assert outcome.text == f"{REF}: {len(CITED)} characters, 5 lines; content not shown"


async def test_sources_of_a_skill_join_the_pool_with_its_numbers(call_tool, timeline, read) -> None:
    pool = MemorySourcePool()
    pool.claim([SourceDraft("Another", "https://a.example/")])

    outcome = await call_tool(read, timeline, {"paths": [REF]}, pool=pool)

    assert [(row.sid, row.title, row.url) for row in pool.rows[1:]] == [
        (2, "The law", "https://law.example/1"), (3, "https://law.example/7", "https://law.example/7")
    ]  # fmt: skip
    assert "Pay within 14 days [[S:2]], see [[S:2-3]] and .\n" in outcome.text
    assert "its sources: so:sources_pool[2-3]" in outcome.text


async def test_a_skill_can_be_read_although_the_pool_is_full(call_tool, timeline, read, monkeypatch) -> None:
    monkeypatch.setattr(sources_module, "MAX_ROWS", 1)

    outcome = await call_tool(read, timeline, {"paths": [REF]})

    assert "the source pool is full, so its sources can't be cited" in outcome.text
    assert "Pay within 14 days , see" in outcome.text


async def test_a_second_read_points_to_the_first_until_it_is_pruned(play, timeline, read) -> None:
    await play(read, timeline, {"paths": [REF]})
    again = await play(read, timeline, {"paths": ["sk:support.refunds"]})
    assert again.text.startswith(f"{REF}: already shown in full in the result tc:turn_1.call_")

    timeline.answer("Done.")
    timeline.start_turn("turn_2", "And this one")
    start = timeline.blocks[-2].seq + 1
    notice = SystemMessageBody(kind="cache_ttl_pruned", text="", recent_from_seq=start, intact_from_seq=start)
    timeline.add(BlockType.SYSTEM_MESSAGE, refs.round_ref("turn_2", 0, "pruned"), notice)
    timeline.start_round()
    shown = "".join(item.text for item in TimelineView(timeline.blocks).items)
    assert f"(pruned)\n{REF}: " in shown and "Pay within" not in shown

    third = await play(read, timeline, {"paths": [REF]})
    assert "Pay within 14 days" in third.text


async def test_a_result_that_only_read_a_skill_is_hidden_by_its_ref(play, timeline, read) -> None:
    await play(read, timeline, {"paths": [REF]})
    timeline.start_round()

    outcome = await play(HideTool(), timeline, {"paths": ["sk:support.refunds"], "replacement": "14 days."})

    assert outcome.text.startswith(f"{REF}: ok, 1 block hidden")
    shown = "".join(item.text for item in TimelineView(timeline.blocks).items)
    assert "14 days. To read it: react.read" in shown and "Pay within" not in shown


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("sk:support.refund", "this agent has no such skill; its skills are support.long, support.longer"),
        ("sk:support.refunds/scripts/x.py", "the skill support.refunds has no such file; it has SKILL.md, assets/form"),
        ("sk:support.refunds/../x", "must be relative, without empty parts, '.' and '..'"),
        ("sk:refunds", "is not a ref. The sk: refs are sk:{namespace}.{skill}/{path}"),
    ],
)
async def test_a_wrong_name_is_answered_with_the_right_ones(play, timeline, read, path: str, problem: str) -> None:
    outcome = await play(read, timeline, {"paths": [path]})

    assert outcome.status == "error" and "missing (" in outcome.text and problem in outcome.text


async def test_binary_files_are_for_programs(play, timeline, read) -> None:
    outcome = await play(read, timeline, {"paths": ["sk:support.refunds/assets/form.bin"]})

    assert '4 bytes; not text: react.pull {"paths": ["sk:support.refunds/assets/form.bin"]}' in outcome.text


async def test_programs_read_skills_by_their_refs(call_tool, timeline, tool_ports, objects, ports) -> None:
    fetch, read_file = FetchCtxTool(objects, tool_ports.attachments, ports), ReadFileTool(objects, ports)
    form = "sk:support.refunds/assets/form.bin"

    skill = await call_tool(fetch, timeline, {"ref": "sk:support.refunds", "offset": 4, "max_chars": 13})
    assert skill.value == {"ref": REF, "text": "name: refunds", "chars": len(CITED), "next_offset": 17}
    data = await call_tool(read_file, timeline, {"ref": form, "offset": 1, "max_bytes": 2})
    assert (data.value["data"], data.value["size"], data.value["next_offset"]) == (b"\x01\x02", 4, 3)
    assert "read it with io_tools.read_file" in (await call_tool(fetch, timeline, {"ref": form})).text


async def test_a_pulled_skill_is_local_and_read_only(play, call_tool, timeline, history, objects) -> None:
    outcome = await play(PullTool(history), timeline, {"paths": ["sk:support.refunds/scripts", "sk:support.none"]})

    assert outcome.data["pulled"] == [
        {
            "ref": "sk:support.refunds/scripts/",
            "path": "skills/support.refunds/scripts/",
            "file_count": 1,
            "size": 38,
            "files": ["sum.py"],
        }
    ]
    assert "no such skill" in outcome.data["invalid"][0]["reason"]
    again = await play(PullTool(history), timeline, {"paths": ["sk:support.refunds/scripts/sum.py"]})
    assert again.data["already_local"] == ["sk:support.refunds/scripts/sum.py"]

    hits = json.loads((await call_tool(RgTool(history, objects), timeline, {"root": "skills/", "pattern": "sum"})).text)
    assert hits["hits"][0]["path"] == "skills/support.refunds/scripts/sum.py"
    assert hits["hits"][0]["matches"][0]["read_item"]["path"] == "sk:support.refunds/scripts/sum.py"
    listed = await call_tool(SearchFilesTool(history), timeline, {"prefix": "sk:support.refunds/"})
    assert json.loads(listed.text)["files"][0]["read_only"] == "pulled"
    local = await call_tool(ListFilesTool(history), timeline, {})
    assert [row["path"] for row in local.value] == ["skills/support.refunds/scripts/sum.py"]
    nothing = await call_tool(SearchFilesTool(history), timeline, {"prefix": "skills/support.long"})
    assert "they were not pulled" in nothing.text
    refused = await call_tool(CheckoutTool(history, objects), timeline, {"paths": ["sk:support.refunds/"]})
    assert refused.status == "error" and "only fi: refs are accepted" in refused.text


async def test_a_program_gets_the_files_of_a_pulled_skill(play, timeline, history, objects, skills) -> None:
    await play(PullTool(history), timeline, {"paths": ["sk:support.refunds"]})
    context = ToolContext(
        OWNER,
        ConversationId("conv_1"),
        timeline.turn_id,
        1,
        timeline.blocks,
        NOW,
        MemorySourcePool(),
        RecordingTurn(),
        skills=skills,
    )

    workspace = await load_local(history, context)
    loaded = await InputLoader(history, objects).load(context, workspace, ["skills/support.refunds/scripts/sum.py"])

    assert loaded.files["skills/support.refunds/scripts/sum.py"] == FILES["skills/support/refunds/scripts/sum.py"]
    assert len(loaded.files) == 6 and loaded.describe_left_out() == ""
    assert "- skills/support.refunds/ (6 files, " in "\n".join(describe_workspace(workspace, ()))


async def test_a_skill_that_the_turn_has_no_more_is_left_out(play, timeline, history) -> None:
    await play(PullTool(history), timeline, {"paths": ["sk:support.refunds"]})
    context = ToolContext(
        OWNER, ConversationId("conv_1"), timeline.turn_id, 1, timeline.blocks, NOW, MemorySourcePool(), RecordingTurn()
    )

    assert not (await load_local(history, context)).files
