"""MCP in both directions: the official SDK's client asks an agent, whose bundle calls a server made with that SDK."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from helpers.forks import ForkingSpawn
from helpers.homes import copy_home
from helpers.mcp_servers import SAMPLE
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PROGRAM = """<channel:code>
print("program:", (await mcp.numbers.add(2, b=3))["result"])
try:
    await mcp.numbers.fail(why="no")
except Exception as error:
    print("refused:", error)
</channel:code>"""


def act(**fields: Any) -> str:
    return f"<channel:action>{json.dumps(fields)}</channel:action>"


def call(tool_id: str, **params: Any) -> str:
    return act(action="call_tool", notes="", tool_call={"tool_id": tool_id, "params": params})


def final(text: str) -> str:
    return act(action="complete", notes="", final_answer=text)


def script(when: str, *replies: str) -> str:
    rounds = (f"[[scripts.rounds]]\nreply = '''{reply}'''\n" for reply in replies)
    return f"[[scripts]]\nwhen = '{when}'\n" + "".join(rounds)


SCRIPT = (
    script("add", call("mcp.numbers.add", a=2, b="40"), final("It is 42."))
    + script(
        "program",
        call("exec_tools.execute_code_python", contract=[], prog_name="numbers", timeout_s=30) + PROGRAM,
        final("The program has run."),
    )
    + script("draw", call("mcp.numbers.picture"), final("Here is the picture."))
    + script("wrong", call("mcp.numbers.add", a="many"), final("That was wrong."))
    + script("wait", call("mcp.numbers.slow", seconds=4), final("It was slow."))
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a platform with the bundle `desk`."""
    home, files = copy_home(tmp_path_factory.mktemp("platform")), tmp_path_factory.mktemp("files")
    (files / "decisions.toml").write_text(SCRIPT)
    config = files / "everturn.toml"
    config.write_text('[bundles.desk]\ntitle = "The desk"\n')
    desk = files / "bundles" / "desk"
    desk.mkdir(parents=True)
    (desk / "server.py").write_bytes(SAMPLE.read_bytes())
    (desk / "bundle.toml").write_text(
        f'id = "desk"\n\n[mcp.sample]\ncommand = "{sys.executable}"\nargs = ["server.py", "stdio"]\n'
    )
    (desk / "tools_descriptor.py").write_text(
        'MCP_TOOL_SPECS = [{"server_id": "sample", "alias": "numbers", "tools": ["*"]}]\n'
    )
    env = {
        "EVERTURN_MODEL": f"scripted:{files / 'decisions.toml'}",
        "EVERTURN_CONFIG": str(config),
        "BUNDLES_DIR": str(files / "bundles"),
    }
    async with Platform(home, ingresses=1, workers=1, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        yield platform.urls[0]


@asynccontextmanager
async def connect(url: str, mode: str = "auto", tenant: str = "default", **headers: str) -> AsyncIterator[Client]:
    address = f"{url}/mcp/{tenant}/default"
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(address, http_client=http), mode=mode) as client,
    ):
        yield client


def text_of(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_asks_an_agent_and_sees_its_steps(url: str, mode: str) -> None:
    seen: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    async with connect(url, mode) as client:
        assert client.server_info is not None and client.server_info.name == "everturn"
        tools = await client.list_tools()
        assert [tool.name for tool in tools.tools] == [
            "list_agents",
            "ask_agent",
            "get_answer",
            "search_conversations",
            "list_files",
            "read_file",
        ]
        assert "desk: The desk." in text_of(await client.call_tool("list_agents"))
        result = await client.call_tool("ask_agent", {"message": "add", "agent": "desk"}, progress_callback=note)
        assert (result.is_error, result.structured_content["status"]) == (False, "answered"), text_of(result)
        assert result.structured_content["answer"] == "It is 42."
        assert "Calling mcp.numbers.add" in seen

        again = await client.call_tool("get_answer", {"conversation_id": result.structured_content["conversation_id"]})
        assert again.structured_content == result.structured_content


async def test_programs_call_the_servers_of_their_bundle(url: str) -> None:
    async with connect(url) as client, httpx2.AsyncClient() as http:
        result = await client.call_tool("ask_agent", {"message": "program", "agent": "desk"})
        ids = result.structured_content
        turn = await http.get(f"{url}/conversations/default/default/{ids['conversation_id']}/turns/{ids['turn_id']}")
        printed = json.dumps(turn.json()["steps"])
        assert "program: 5" in printed
        assert "refused:" in printed


async def test_files_of_a_server_are_files_of_the_conversation(url: str) -> None:
    async with connect(url) as client:
        result = await client.call_tool("ask_agent", {"message": "draw", "agent": "desk"})
        (file,) = result.structured_content["files"]
        assert (file["mime"], file["made_by"]) == ("image/png", "agent")
        listed = await client.call_tool("list_files", {"conversation_id": result.structured_content["conversation_id"]})
        assert listed.structured_content["files"][0]["artifact_id"] == file["artifact_id"]
        read = await client.call_tool("read_file", {"artifact_id": file["artifact_id"]})
        assert read.content[0].mime_type == "image/png"


async def test_a_long_answer_is_waited_for_later(url: str) -> None:
    async with connect(url) as client:
        begun = await client.call_tool("ask_agent", {"message": "wait", "agent": "desk", "wait_s": 0})
        assert begun.structured_content["status"] == "running"
        ids = {key: begun.structured_content[key] for key in ("conversation_id", "turn_id")}
        done = await client.call_tool("get_answer", {**ids, "wait_s": 60})
        assert done.structured_content["answer"] == "It was slow."


async def test_the_person_of_the_credential_decides_what_is_found(url: str) -> None:
    async with connect(url) as client:
        ids = (await client.call_tool("ask_agent", {"message": "add", "agent": "desk"})).structured_content
        async with asyncio.timeout(60):  # until the turn is indexed
            found = await client.call_tool("search_conversations", {"query": "It is 42"})
            while not found.structured_content["items"]:
                await asyncio.sleep(0.2)
                found = await client.call_tool("search_conversations", {"query": "It is 42"})
        assert "It is 42." in text_of(found)
    async with connect(url, **{"X-Dev-User": "eve"}) as client:
        found = await client.call_tool("search_conversations", {"query": "It is 42"})
        assert text_of(found) == "Nothing was found."
        stolen = await client.call_tool("get_answer", {"conversation_id": ids["conversation_id"]})
        assert stolen.is_error and "Not found (404)" in text_of(stolen)
        followed = await client.call_tool("ask_agent", {"message": "add", "conversation_id": ids["conversation_id"]})
        assert followed.is_error and "Not found (404)" in text_of(followed)


async def test_refusals_are_errors_that_say_why(url: str) -> None:
    async with connect(url) as client:
        unknown = await client.call_tool("ask_agent", {"message": "hi", "agent": "nobody"})
        assert unknown.is_error and "must be one of default, desk" in text_of(unknown)
        missing = await client.call_tool("get_answer", {"conversation_id": "conv_1"})
        assert missing.is_error and "Not found (404)" in text_of(missing)
        wrong = await client.call_tool("ask_agent", {"message": "hi", "wait": 3})
        assert wrong.is_error and "arguments.wait" in text_of(wrong)
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("delete_everything", {})


async def test_the_credential_is_checked_before_the_protocol(url: str) -> None:
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{url}/mcp/default/default", json={}, headers={"Authorization": "Bearer x"})
        assert (answer.status_code, answer.json()["error"]["data"]["type"]) == (
            401,
            "urn:everturn:problem:unauthorized",
        )
        large = await http.post(f"{url}/mcp/default/default", content=b" " * 600_000)
        assert large.status_code == 413
        assert (await http.get(f"{url}/mcp/default/default")).status_code == 405
