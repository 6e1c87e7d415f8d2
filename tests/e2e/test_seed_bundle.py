"""What the seeds show authors of bundles runs as it stands: one sample bundle, installed from outside the repository.

| lines of the seeds | here |
|---|---|
| 000:38-46, 002:7-15: `build_react` with all its parameters, `react.run(payload)` | WORKFLOW |
| 000:289-299, 002:157-167: the dictionary of `knowledge` | KNOWLEDGE, of a git repository |
| 000:300-301, 002:168: `on_bundle_load()`, `pre_run_hook()` | WORKFLOW |
| 000:303, 002:169: `react.search_knowledge(query=..., limit=5)` | SEARCH |
| 000:303, 002:169: `react.read` of a `ks:` path | READ |
| 000:309-315, 002:172-178: `self.ctx_client.search(...)`, `fetch_ctx([...])` | WORKFLOW |
| 000:342-343, 002:193-194: `hosting.get_artifact_url("fi:...")` | WORKFLOW |
| 000:184, 002:84: tools of `tools_descriptor.py`, MCP tools among them | DESCRIPTOR |
| 001:42, 003:40: `ks:` paths of documents, cloned repositories | the answers of READ |
| 000:315: `turn_abc` and 000:343: `turn_123` are ids of turns that exist | WORKFLOW |
| 001: the channels of the illustrative adaptation, `stream_with_channels` with subscribers | `stream` in WORKFLOW |
| 003:41: `react.read(["sk:public.pdf-press/SKILL.md"])` | SKILL |
"""

import ast
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.forks import ForkingSpawn
from helpers.git_sources import GitSource
from helpers.homes import copy_home
from helpers.waiting import wait_until

from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

KNOWLEDGE = """
{
    "knowledge": {
        "repo": "https://github.com/org/repo.git",  # "" = local repo
        "ref": "main",
        "docs_root": "app/docs",
        "src_root": "app/src",
        "deploy_root": "app/deploy",
        "tests_root": "app/tests",
        "validate_refs": True
    }
}
"""
SEARCH = 'react.search_knowledge(query="regions of the database", limit=5)'
READ = 'react.read(["ks:docs/architecture.md"])'
SKILL = 'react.read(["sk:public.pdf-press/SKILL.md"])'
WORKFLOW = """
import json

from everturn_sdk import BaseWorkflow, ChannelSpec, ChannelSubscribers, stream_with_channels


class MyWorkflow(BaseWorkflow):
    def on_bundle_load(self):
        self.index = {"docs/architecture.md": "The functions of the workflow know all regions."}

    async def pre_run_hook(self):
        self.reconciled = True

    async def _search_knowledge(self, query, limit=5):
        assert self.reconciled
        return [{"path": f"ks:{path}", "text": text} for path, text in self.index.items()][:limit]

    def _read_knowledge(self, path):
        return self.index[path]

    async def stream(self):
        svc = self.models
        system_msg = {"role": "system", "content": "Answer from the sources."}
        user_msg = {"role": "user", "content": "Stream the report."}
        sources_list = [{"sid": sid, "url": f"https://example.com/{sid}", "title": f"Page {sid}"} for sid in (1, 2, 3)]
        recorded = []

        async def _emit_wrapper(**delta):
            pass

        async def _record_usage_sids(**delta):
            recorded.append(delta)

        channels = [
            ChannelSpec(name="thinking", format="markdown", replace_citations=False, emit_marker="thinking"),
            ChannelSpec(name="answer", format="markdown", replace_citations=True, emit_marker="answer"),
            ChannelSpec(name="followup", format="json", replace_citations=False, emit_marker="followup"),
            ChannelSpec(name="usage", format="json", replace_citations=False, emit_marker="answer"),
        ]
        results, meta = await stream_with_channels(
            svc=svc,
            messages=[system_msg, user_msg],
            role="answer.generator.regular",
            channels=channels,
            emit=_emit_wrapper,
            agent="my.react.agent",
            artifact_name="response",
            sources_list=sources_list,
            subscribers=ChannelSubscribers().subscribe("usage", _record_usage_sids),
            return_full_raw=True,
        )
        answer_text = results["answer"].raw
        used_sids = results["answer"].used_sources
        service_err = (meta or {}).get("service_error")
        return json.dumps([answer_text, list(used_sids), service_err, len(recorded) > 0])

    async def run(self, payload):
        if "Stream" in payload.text:
            return await self.stream()
        if "repository" in payload.text:
            return await (await self.build_react()).run(payload)
        scratchpad = self.scratchpad
        react = await self.build_react(
            scratchpad=scratchpad,
            tools_module="my_bundle.tools_descriptor",
            skills_module="my_bundle.skills_descriptor",
            knowledge_space_fn=self._search_knowledge,   # optional
            knowledge_read_fn=self._read_knowledge,      # optional
        )
        result = await react.run(payload)
        if "context" not in payload.text:
            return result

        # self.ctx_client is ContextRAGClient
        results = await self.ctx_client.search(
            query="previous analysis of sales data",
            kind="assistant",   # or "user" | "attachment"
            limit=5
        )
        refs = [each["ref"] for each in results if "North leads" in each["text"]]
        turn_abc = refs[0].removeprefix("ar:").partition(".assistant.")[0]
        artifact = await self.ctx_client.fetch_ctx([f"ar:{turn_abc}.artifacts.summary"])
        said = await self.ctx_client.fetch_ctx(refs)

        # ApplicationHostingService (via BaseWorkflow.hosting_service)
        hosting = self.hosting_service
        turn_123 = payload.turn_id
        url = hosting.get_artifact_url(f"fi:{turn_123}.outputs/export/report.pdf")
        roles = [each["role"] for each in results]
        return json.dumps({"roles": roles, "artifact": artifact, "said": said, "url": url})
"""
DESCRIPTOR = """
TOOLS_SPECS = [{"ref": "tools/export.py", "alias": "export"}]
MCP_TOOL_SPECS = [{"server_id": "orders", "alias": "orders", "tools": ["*"]}]
TOOL_RUNTIME = {"export.report": "local"}
"""
TOOL = '''
from everturn_sdk import ToolContext, tool


@tool(effect="idempotent")
async def report(context: ToolContext) -> str:
    """Exports a report."""
    await context.put_artifact("outputs/export/report.pdf", b"%PDF-1.4 the report")
    return "exported"
'''
MANIFEST = 'id = "my_bundle"\n\n[mcp.orders]\ncommand = "python"\nargs = ["server.py"]\n'
INDEXED = "SELECT count(*) FROM knowledge_space WHERE state = 'ready'"
EMBEDDED = "SELECT count(*) FROM snippet WHERE text LIKE '%North leads%'"
ORDERS = Path(__file__).resolve().parents[2] / "bundles" / "desk"


def call(written: str) -> str:
    """The reply of a model that makes this call, as the seeds write it."""
    expression = ast.parse(written, mode="eval").body
    assert isinstance(expression, ast.Call)
    params = {word.arg: ast.literal_eval(word.value) for word in expression.keywords}
    if expression.args:
        params["paths"] = ast.literal_eval(expression.args[0])
    return act(action="call_tool", notes="", tool_call={"tool_id": ast.unparse(expression.func), "params": params})


def act(**fields: Any) -> str:
    return f"<channel:action>{json.dumps(fields)}</channel:action>"


def script(when: str, *calls: str, answer: str, summary: str = "") -> str:
    last = act(action="complete", notes="", final_answer=answer) + f"<channel:summary>{summary}</channel:summary>"
    replies = [*map(call, calls), last]
    rounds = (f"[[scripts.rounds]]\nreply = '''{reply}'''\n" for reply in replies)
    return f"[[scripts]]\nwhen = '{when}'\n" + "".join(rounds)


STREAMED = """[[scripts]]
when = "Stream the report."
[[scripts.rounds]]
reply = '''<channel:thinking>
Let me check the document structure first...
</channel:thinking>
<channel:answer>
Based on the report [[S:1]], the key findings are [[S:2-3]]
</channel:answer>
<channel:followup>
{"followups": ["Show me the full table", "Compare with last quarter"]}
</channel:followup>
<channel:usage>{"sids": [1]}</channel:usage>'''
"""
SCRIPTS = STREAMED + (
    script("from the repository", SEARCH, READ, answer="They are in the zephyr database [[S:1]].")
    + script("from the functions", SEARCH, READ, answer="The functions know them.")
    + script(
        "Analyse",
        SKILL,
        "mcp.orders.find_order(number=1042)",
        answer="The analysis of sales data: North leads.",
        summary="Goal: an analysis of sales data",
    )
    + script("context", "export.report()", answer="Exported.")
)


def write_bundle(folder: Path, repository: GitSource) -> None:
    """As an author would: the dictionary becomes a table, with the address of a repository that exists."""
    (section,) = ast.literal_eval(KNOWLEDGE.strip()).values()
    keys = "".join(f"{name} = {json.dumps(value)}\n" for name, value in {**section, "repo": repository.url}.items())
    files = {
        "bundle.toml": f"{MANIFEST}\n[knowledge]\n{keys}",
        "workflow.py": WORKFLOW,
        "tools_descriptor.py": DESCRIPTOR,
        "skills_descriptor.py": 'SKILLS_SPECS = [{"namespace": "public"}]\n',
        "tools/export.py": TOOL,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for name in ("server.py", "orders.json"):
        shutil.copy(ORDERS / name, folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory, make_harness: Any) -> AsyncIterator[Any]:
    home, files = copy_home(tmp_path_factory.mktemp("platform")), tmp_path_factory.mktemp("files")
    repository = GitSource(files / "repo")
    for path in ("docs/architecture.md", "src/main.py", "deploy/compose.yml", "tests/test_main.py"):
        repository.write(f"app/{path}", f"# {path}\n\nThe zephyr database holds all regions.\n")
    repository.commit()
    write_bundle(files / "bundles" / "my_bundle", repository)
    (files / "scripts.toml").write_text(SCRIPTS)
    env = {
        "EVERTURN_MODEL": f"scripted:{files / 'scripts.toml'}",
        "BUNDLES_DIR": str(files / "bundles"),
        "GIT_HOSTS": "file:",
    }
    async with Platform(home, ingresses=1, workers=1, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        await wait_until(lambda: platform.postgres.run_sql(INDEXED, database=DATABASE) == "1")
        opened = make_harness(platform)
        yield opened
        await opened.quit()


async def run(harness: Any, text: str) -> Any:
    sent = await harness.clients[0].send_message("new", text, bundle_id="my_bundle")
    watcher = harness.watch(sent.conversation_id)
    turn = await watcher.wait_ended(sent.turn_id)
    await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()
    assert turn.outcome == "completed", turn
    return turn


async def test_the_agent_searches_and_reads_the_repository(harness: Any) -> None:
    turn = await run(harness, "Where are the regions, from the repository?")

    searched, read = turn.steps
    for path in ("ks:docs/architecture.md", "ks:src/main.py", "ks:deploy/compose.yml", "ks:tests/test_main.py"):
        assert path in searched.result_preview
    assert "The zephyr database holds all regions." in read.result_preview
    assert turn.citations[0].url.startswith("ks:")


async def test_functions_of_the_workflow_can_answer_instead(harness: Any) -> None:
    turn = await run(harness, "Where are the regions, from the functions?")

    searched, read = turn.steps
    assert "ks:docs/architecture.md" in searched.result_preview
    assert "The functions of the workflow know all regions." in read.result_preview


async def test_the_workflow_finds_what_was_said_and_the_address_of_a_file(harness: Any) -> None:
    analysed = await run(harness, "Analyse the sales data.")
    skill, order = analysed.steps
    assert "name: pdf-press" in skill.result_preview
    assert "Ann Weber" in order.result_preview
    await wait_until(lambda: harness.platform.postgres.run_sql(EMBEDDED, database=DATABASE) != "0")

    turn = await run(harness, "Now the context.")

    found = json.loads(turn.answer)
    assert set(found["roles"]) == {"assistant"}
    assert "North leads." in found["said"]
    assert "Goal: an analysis of sales data" in found["artifact"]
    (file,) = turn.files
    assert (file.filename, file.url) == ("report.pdf", found["url"])


async def test_a_workflow_streams_channels_with_subscribers(harness: Any) -> None:
    turn = await run(harness, "Stream a report.")

    answer, used, error, is_recorded = json.loads(turn.answer)
    assert answer.strip() == "Based on the report [[S:1]], the key findings are [[S:2-3]]"
    assert (used, error, is_recorded) == ([1, 2, 3], None, True)
    assert turn.followups == ("Show me the full table", "Compare with last quarter")
