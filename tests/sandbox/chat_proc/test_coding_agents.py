"""Real coding agents in the real sandbox, each against a model server in its provider's format: a failing test is
fixed, and nothing secret is to be found."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from helpers.coding_model import CodingModel, change, read, run, serve_coding_model
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, BenchWorker
from turn_harness.replies import answer, call

from chat_proc.catalog.tool import ToolRegistry
from chat_proc.model_gateway.gateway import GatewayModel, ModelGateways, open_gateways
from chat_proc.models.endpoints import Endpoint
from chat_proc.models.roles import ModelChoice
from chat_proc.models.upstreams import find_upstream
from chat_proc.sandbox.bubblewrap import open_bubblewrap_sandbox
from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.network import NetworkAccess
from chat_proc.tools.coding.run_agent import CodingAgent, RunAgentTool, load_project_files
from chat_proc.tools.workspace.write import WriteTool
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.logging import Redactor
from everturn.execution.profiles import load_profiles
from everturn.models.port import ModelTraits, Price
from everturn.timeline.blocks import ToolResultBody
from everturn.timeline.turns import Outcome
from everturn_local.settings import WARM_AND_CODING_PROFILES
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.history import MemoryWorkspaceChanges

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-sandbox" / "bin" / "python"
PROFILES = load_profiles(WARM_AND_CODING_PROFILES)
KEY = "sk-operator-key-4711"
CODE = "def add(a, b):\n    return a - b\n"
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
TESTS_PASS = run("python -m pytest -q -p no:cacheprovider")
SEARCH = """
import contextlib, glob, os, urllib.request
SECRET = b"sk-operator" + b"-key"
files = glob.glob("/proc/[0-9]*/*")
files += [os.path.join(folder, name) for top in ("/workspace", "/run", "/etc") for folder, _, names in os.walk(top)
          for name in names]
for path in files:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if SECRET in file.read(1 << 20):
            print("found in", path)
try:
    print(urllib.request.urlopen("http://example.com", timeout=5).status)
except OSError as error:
    print("refused:", error)
print("searched")
"""
AGENTS = [
    "claude-code",
    pytest.param("acp:opencode acp", marks=pytest.mark.slow),
    pytest.param("acp:claude-code-acp", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def sandbox() -> SupervisedSandbox:
    """Bubblewrap with the agents, which `make coding-agents` installs. Not in CI: with so many files to search, the
    escape battery needs more processor time than its profile has."""
    if not (PYTHON.parent / "claude-code-acp").exists():
        pytest.skip("Coding agents are not installed: make coding-agents")
    return asyncio.run(open_bubblewrap_sandbox(PYTHON, PROFILES))


@pytest.fixture
async def gateways() -> AsyncIterator[ModelGateways]:
    async with open_gateways({}, {}, redactor=Redactor((KEY,))) as opened:
        yield opened


async def resolve_nothing(*_: object) -> list[str]:
    raise AssertionError("no name of this network is resolved")


class Team:
    """A conversation with a project, whose agent is real and whose model is played."""

    def __init__(self, sandbox: SupervisedSandbox, gateways: ModelGateways, model: CodingModel, runtime: str) -> None:
        files = [("files/calc.py", CODE), ("files/test_calc.py", TEST), ("files/search.py", SEARCH)]
        writes = [call("react.write", {"path": path, "content": text}) for path, text in files]
        self.bench = Bench(
            *writes, answer("Begun."), call("code_agent.run", {"task": "Fix the test."}), answer("Done.")
        )
        self.changes = MemoryWorkspaceChanges(self.bench.platform)
        self.sandbox = sandbox.with_network(NetworkAccess(PROFILES, resolve_nothing))
        endpoints = {"test": Endpoint(protocol="anthropic", base_url=model.url, key_env="TEST_KEY")}
        upstream = find_upstream(ModelChoice("test", "model-1", ""), {"TEST_KEY": KEY}, endpoints)
        traits = ModelTraits("model-1", 200_000, False, False, price=Price(input=1.0, output=2.0, cache_read=0.1))
        self.model = GatewayModel("decision", traits, upstream)
        self.gateways, self.runtime = gateways, runtime

    def hire(self) -> BenchWorker:
        history = WorkspaceHistory(MemoryArtifacts(self.bench.platform))
        agent = CodingAgent(
            self.runtime,
            "coding",
            PROFILES["coding"],
            lambda turn, name: self.gateways.open(self.model, None, turn, run=name, max_output_tokens=32_000).serve,
        )
        load = partial(load_project_files, self.changes)
        tool = RunAgentTool(self.sandbox, self.bench.objects, history, load, agent)
        self.bench.registry = ToolRegistry([WriteTool(self.bench.objects), tool])
        return self.bench.hire()

    async def begin(self) -> None:
        """The first turn writes the project."""
        await self.bench.say("Write a calculator.")
        await self.hire().work()
        await self.bench.say("Now fix it.")

    @property
    def result(self) -> ToolResultBody:
        bodies = [block.body for block in self.bench.blocks if isinstance(block.body, ToolResultBody)]
        return next(body for body in bodies if body.tool_id == "code_agent.run")

    @property
    def steps(self) -> list[ToolResultBody]:
        bodies = [block.body for block in self.bench.blocks if isinstance(block.body, ToolResultBody)]
        return [body for body in bodies if body.parent]

    def read_file(self, name: str) -> str:
        (artifact,) = [each for each in self.result.artifacts if each.path.endswith(f"/files/{name}")]
        return self.bench.objects.stored[artifact.object_key].decode()


@pytest.mark.parametrize("runtime", AGENTS)
async def test_a_failing_test_is_fixed(sandbox: SupervisedSandbox, gateways: ModelGateways, runtime: str) -> None:
    steps = [TESTS_PASS, read("calc.py"), change("calc.py", "a - b", "a + b"), TESTS_PASS, run("python search.py")]
    with serve_coding_model(CodingModel(steps, "The test passes now.")) as model:
        team = Team(sandbox, gateways, model, runtime)
        await team.begin()
        await team.hire().work()

    assert team.result.status == "ok", team.result.text
    assert team.result.text.startswith("The test passes now.")
    assert team.read_file("calc.py") == CODE.replace("a - b", "a + b")
    failing, reading, edit, passing, searching = team.steps
    assert "1 failed" in failing.text
    assert (reading.status, edit.status) == ("ok", "ok")
    assert "1 passed" in passing.text
    assert "refused:" in searching.text
    assert "searched" in searching.text
    assert KEY not in json.dumps([block.body_json for block in team.bench.blocks])
    assert "found" not in searching.text
    assert set(model.keys) == {KEY}
    assert {request["model"] for request in model.requests} == {"model-1"}
    (_, ended) = team.bench.exits
    assert ended.outcome is Outcome.COMPLETED
    usage = team.bench.turn_rows[-1].usage
    assert usage.input_tokens >= 100 * len(model.decisions)
    await check_conversation(team.bench)


async def test_a_killed_worker_continues_in_the_same_session(
    sandbox: SupervisedSandbox, gateways: ModelGateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [run("echo one"), change("calc.py", "a - b", "a + b"), TESTS_PASS, run("sleep 11"), run("echo last")]
    with serve_coding_model(CodingModel(steps, "The test passes now.")) as model:
        model.held_at = 4
        team = Team(sandbox, gateways, model, "claude-code")
        await team.begin()
        lost, heir = team.hire(), team.hire()
        working = asyncio.create_task(lost.work())
        await asyncio.to_thread(model.is_held.wait, 60)
        lost.gate.dead.set()
        await working
        model.held_at = None
        model.release.set()
        team.bench.expire_lease()
        await heir.work()

    assert team.result.status == "ok", team.result.text
    assert team.read_file("calc.py") == CODE.replace("a - b", "a + b")
    resumed = model.decisions[-1]
    said = json.dumps(resumed["messages"])
    assert "The machine on which you worked was lost" in said
    assert "Fix the test." in said
    assert "echo one" in said
    assert [step.status for step in team.steps].count("ok") >= 4
    await check_conversation(team.bench)
