"""Agents with servers made with the official SDK, over stdio and HTTP: tools, results, changes, outages."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from documents.blocks import read_blocks
from helpers.mcp_servers import SAMPLE, Agent, find_port, open_agent, run_sample
from helpers.waiting import wait_until
from structlog.testing import capture_logs

from chat_proc.agent.prompt.system import build_system_prompt
from chat_proc.catalog.mcp_servers import McpServer
from chat_proc.mcp.connection import McpConnection
from chat_proc.mcp.stdio import ChildCommand, ChildOptions, StdioProcess
from everturn.core.errors import EverturnError, Invalid, Unavailable
from everturn.core.logging import Redactor
from everturn.turns.model import Effect

pytestmark = pytest.mark.sampled


def effects(agent: Agent) -> dict[str, Effect]:
    return {tool.spec.tool_id: tool.spec.effect for tool in agent.servers.tools}


async def test_tools_are_offered_with_their_effects(sample: McpServer) -> None:
    async with open_agent(sample) as agent:
        assert agent.servers.list_problems() == ()
        found = effects(agent)
        assert (found["mcp.s.add"], found["mcp.s.greet"], found["mcp.s.fail"]) == (
            Effect.PURE,
            Effect.IDEMPOTENT,
            Effect.IRREVERSIBLE,
        )
        spec = agent.kit().spec("mcp.s.add")
        assert (spec.summary, spec.untrusted, spec.in_programs) == ("Add two numbers.", True, True)
        prompt = build_system_prompt([spec])
        assert '"a": {"type": "integer"}, "b": {"default": 1, "type": "integer"}' in prompt
        assert "Parameters:" not in build_system_prompt([spec], codec="native")


async def test_results_become_text_values_and_files(sample: McpServer) -> None:
    async with open_agent(sample) as agent:
        added = await agent.call("mcp.s.add", a="2")
        assert (added.status, added.text, added.value, added.untrusted) == ("ok", "3", {"result": 3}, True)

        mixed = await agent.call("mcp.s.mixed")
        assert "first\n\nResource notes (file:///notes.txt): Some notes" in mixed.text
        assert "Resource memo://1:\nthe memo" in mixed.text
        assert mixed.value == {"count": 4}
        (table,) = mixed.artifacts
        assert (table.filename.endswith("-1-table.csv"), table.mime, table.visibility) == (True, "text/csv", "external")
        assert table.ref in mixed.text
        assert await agent.objects.load(table.object_key, max_bytes=100) == b"a,b\n1,2\n"

        (picture,) = (await agent.call("mcp.s.picture")).artifacts
        assert picture.mime == "image/png"


async def test_errors_are_outcomes(sample: McpServer) -> None:
    async with open_agent(sample) as agent:
        failed = await agent.call("mcp.s.fail", why="because")
        assert (failed.status, failed.text) == ("error", "Error executing tool fail")
        with pytest.raises(Invalid, match="a: Field required"):
            await agent.call("mcp.s.add")


async def test_progress_becomes_events(sample: McpServer) -> None:
    async with open_agent(sample) as agent:
        assert (await agent.call("mcp.s.slow", seconds=0.2)).text == "done"
        assert agent.live.tool_events == [("progress", f"{step} of 4: step {step}") for step in range(4)]


async def test_a_cancelled_call_is_cancelled_at_the_server(sample: McpServer) -> None:
    async with open_agent(sample) as agent:
        call = asyncio.create_task(agent.call("mcp.s.slow", seconds=60))
        await wait_until(lambda: agent.live.tool_events)
        call.cancel()
        await asyncio.wait({call}, timeout=2)
        assert call.cancelled()
        async with asyncio.timeout(20):
            await agent.call("mcp.s.cancelled")


async def test_a_changed_list_is_for_later_turns(sample: McpServer) -> None:
    async with open_agent(sample) as agent:
        running = agent.kit()
        await agent.call("mcp.s.grow", running)
        await agent.until_offered("mcp.s.grown")
        assert running.try_spec("mcp.s.grown") is None
        assert (await agent.call("mcp.s.grown", word="later")).text == "LATER"
        assert agent.changes == 1


async def test_the_configuration_chooses_and_overrides() -> None:
    server = McpServer(
        command=sys.executable,
        args=(str(SAMPLE), "stdio"),
        tools=("add", "fail", "gone"),
        effects={"fail": Effect.PURE},
        requires_approval=("add",),
        timeout_s=7,
    )
    async with open_agent(server) as agent:
        assert agent.tool_ids == ["mcp.s.add", "mcp.s.fail"]
        add, fail = (agent.kit().spec(tool_id) for tool_id in agent.tool_ids)
        assert (add.requires_approval, add.in_programs, add.timeout_s) == (True, False, 7)
        assert (fail.requires_approval, fail.effect) == (False, Effect.PURE)
        assert agent.servers.list_problems() == ("mcp.s: tools names the tool 'gone', which the server does not have.",)


async def test_an_approval_for_an_unknown_tool_protects_all_tools() -> None:
    server = McpServer(command=sys.executable, args=(str(SAMPLE), "stdio"), requires_approval=("ad",))
    async with open_agent(server) as agent:
        specs = [agent.kit().spec(tool_id) for tool_id in agent.tool_ids]
        assert specs
        assert all(spec.requires_approval and not spec.in_programs for spec in specs)
        assert agent.servers.list_problems() == (
            "mcp.s: requires_approval names the tool 'ad', which the server does not have. Until this is corrected, "
            "each call of its tools needs approval.",
        )


async def test_a_command_gets_its_own_environment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    server = McpServer(command=sys.executable, args=("server.py", "stdio"), env={"TOKEN": "${b:token}", "TEAM": "a"})
    async with open_agent(
        server, secrets={"b:token": "s3cret-value"}, files={"server.py": SAMPLE.read_bytes()}
    ) as agent:
        outcome = await agent.call("mcp.s.environment")
        assert isinstance(outcome.value, dict)
        assert set(outcome.value) <= {"PATH", "HOME", "TMPDIR", "LANG", "TOKEN", "TEAM", "LC_CTYPE"}
        assert (outcome.value["TOKEN"], outcome.value["TEAM"]) == ("[redacted]", "a")
        assert "s3cret-value" not in outcome.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change users")
async def test_a_bundles_command_of_a_worker_that_is_root_is_another_users() -> None:
    server, files = McpServer(command=sys.executable, args=("server.py", "stdio")), {"server.py": SAMPLE.read_bytes()}
    async with open_agent(server, files=files, uids=range(21_990, 21_991)) as agent:
        assert (await agent.call("mcp.s.user")).text == "21990"


async def test_a_bundles_command_reads_no_files_of_the_worker(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    server = McpServer(command=sys.executable, args=("server.py", "stdio"))
    async with open_agent(server, files={"server.py": SAMPLE.read_bytes(), "data/a.txt": b"mine"}) as agent:
        assert (await agent.call("mcp.s.read", path="data/a.txt")).text == "mine"
        assert (await agent.call("mcp.s.read", path=str(tmp_path / "secret"))).status == "error"


async def test_a_missing_secret_leaves_out_its_server_only(sample_stdio: McpServer) -> None:
    broken = McpServer(command="x", env={"TOKEN": "${b:token}"})
    async with open_agent(broken, good=sample_stdio) as agent:
        assert agent.servers.list_problems() == ("mcp.s: The secret b:token is not set.",)
        assert (await agent.call("mcp.good.add", a=1)).text == "2"


async def test_a_command_that_does_not_exist_is_reported() -> None:
    async with open_agent(McpServer(command="no-such-command"), ready_within_s=2) as agent:
        (problem,) = agent.servers.list_problems()
        assert "The command no-such-command does not exist here" in problem
        assert agent.tool_ids == []


async def test_why_a_command_ended_is_in_what_it_wrote_first_and_last() -> None:
    code = (
        "import os, sys; sys.stderr.write('Cannot find ' + os.getcwd() + '/a.js\\n' + 'line\\n' * 100 + "
        "'ImportError: it was renamed'); sys.exit(1)"
    )
    with capture_logs() as lines:
        async with open_agent(McpServer(command=sys.executable, args=("-c", code)), ready_within_s=4) as agent:
            await wait_until(lambda: len(list_failures(lines)) >= 2)
            (problem,) = agent.servers.list_problems()
    assert "The server ended before it answered, with exit status 1. It wrote: Cannot find a.js line" in problem
    assert problem.endswith("ImportError: it was renamed")
    failures = list_failures(lines)
    assert (failures[0], set(failures[1:])) == ("warning", {"debug"})


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys", "with exit status 0. Its program must start the server and go on, as `server.run()` does in"),
        ("import os; os.kill(os.getpid(), 9)", "killed by signal 9."),
    ],
)
async def test_how_a_command_ended_is_reported(code: str, why: str) -> None:
    async with open_agent(McpServer(command=sys.executable, args=("-c", code)), ready_within_s=4) as agent:
        (problem,) = agent.servers.list_problems()

    assert f"The server ended before it answered, {why}" in problem


def list_failures(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The levels at which failed starts were logged."""
    return [line["log_level"] for line in lines if line["event"] == "Could not connect to an MCP server"]


async def test_a_server_that_dies_in_a_call_leaves_it_uncertain_and_returns(sample_stdio: McpServer) -> None:
    async with open_agent(sample_stdio) as agent:
        # Raised, so that the loop says of an irreversible call that its effect is unknown.
        with pytest.raises(Unavailable, match="lost during the call"):
            await agent.call("mcp.s.die")
        assert (await agent.call("mcp.s.add", a=1)).text == "2"
        assert agent.servers.list_problems() == ()


async def test_tools_of_a_server_that_is_away_stay_and_say_so() -> None:
    port = find_port()
    async with open_agent(McpServer(url=f"http://127.0.0.1:{port}/mcp"), ready_within_s=0.5) as agent:
        (problem,) = agent.servers.list_problems()
        assert "The connection failed (ConnectError)" in problem
        assert agent.tool_ids == []
        with run_sample(port):
            await agent.until_offered("mcp.s.add")
        away = await agent.call("mcp.s.add", a=1)
        assert (away.status, away.text) == ("error", "The call was not made: The connection failed (ConnectError).")
        assert "mcp.s.add" in agent.tool_ids
        with run_sample(port):
            assert (await agent.call("mcp.s.add", a=1)).text == "2"


async def test_calls_of_many_turns_share_a_connection(sample: McpServer) -> None:
    async with open_agent(sample) as agent:
        outcomes = await asyncio.gather(*(agent.call("mcp.s.add", a=number, b=0) for number in range(20)))
        assert [outcome.text for outcome in outcomes] == [str(number) for number in range(20)]


async def test_the_server_on_the_page_works_with_the_version_on_the_page(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs/how-to/connect-mcp.md").read_text()
    (written,) = [block for block in read_blocks(page) if block.file == "server.py"]
    program = tmp_path / "server.py"
    program.write_text(written.text)

    async with open_agent(McpServer(command=sys.executable, args=(str(program),))) as agent:
        found = await agent.call("mcp.s.find_opening_hours", weekday="Sunday")

    assert found.text == "closed"
    assert f"`mcp=={version('mcp')}`" in page


HANGING = """
import json, os, sys, time
RESULTS = {
    "initialize": {
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}
    },
    "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("who", "stop")]},
    "tools/call": {"content": [{"type": "text", "text": str(os.getpid())}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    print(f"got {asked['method']}", file=sys.stderr, flush=True)
    if asked["method"] == "tools/call" and asked["params"]["name"] == "stop":
        time.sleep(1_000)
    if "id" in asked:
        known = RESULTS.get(asked["method"])
        answer = {"result": known} if known else {"error": {"code": -32601, "message": "There is no such method."}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


async def test_a_server_that_hangs_is_started_again(tmp_path: Path) -> None:
    async def ignore(*_: object) -> None: ...

    program = tmp_path / "server.py"
    program.write_text(HANGING)
    command = ChildCommand(sys.executable, [str(program)], {}, None)
    redactor = Redactor()
    connection = McpConnection(
        "s",
        lambda: StdioProcess("s", command, ChildOptions(), redactor),
        start_timeout_s=5,
        on_change=ignore,
        redactor=redactor,
    )
    running = asyncio.create_task(connection.run())

    async def find_process() -> str:
        result = await connection.call("who", {}, 5, ignore)
        return str(result.content[0])

    with capture_logs() as logs:
        try:
            first = await find_process()
            with pytest.raises(Unavailable, match="did not answer the call of stop in time"):
                await connection.call("stop", {}, 0.5, ignore)
            again = first
            async with asyncio.timeout(60):
                while again == first:
                    with suppress(EverturnError):
                        again = await find_process()
        finally:
            await connection.close(running)

    written = [log["text"] for log in logs if log["event"] == "Output of an MCP server" and log["server"] == "s"]
    assert {"got initialize", "got tools/list", "got tools/call"} <= {*written}
