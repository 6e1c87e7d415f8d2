"""Agents with the reference servers of the protocol, as npm packages over stdio."""

from pathlib import Path

import pytest
from helpers.mcp_servers import open_agent
from helpers.node_packages import find_node, install_packages

from chat_proc.catalog.mcp_servers import McpServer
from everturn.turns.model import Effect

SOURCE = Path(__file__).parents[3] / "support" / "mcp_servers_js"


@pytest.fixture(scope="module")
def packages(pytestconfig: pytest.Config) -> Path:
    folder = install_packages(SOURCE, pytestconfig.rootpath / ".pytest_cache" / "mcp_servers_js")
    return folder / "node_modules" / "@modelcontextprotocol"


def server(packages: Path, name: str, *args: str, **more: object) -> McpServer:
    script = str(packages / f"server-{name}" / "dist" / "index.js")
    return McpServer.model_validate({"command": str(find_node().program), "args": (script, *args), **more})


async def test_everything_the_protocol_has_can_be_called(packages: Path) -> None:
    async with open_agent(server(packages, "everything")) as agent:
        assert agent.servers.list_problems() == ()
        assert (await agent.call("mcp.s.echo", message="hi")).text == "Echo: hi"
        assert (await agent.call("mcp.s.get_sum", a=2, b="3")).text == "The sum of 2 and 3 is 5."

        image = await agent.call("mcp.s.get_tiny_image")
        assert [artifact.mime for artifact in image.artifacts] == ["image/png"]

        weather = await agent.call("mcp.s.get_structured_content", location="New York")
        assert weather.value == {"temperature": 33, "conditions": "Cloudy", "humidity": 82}

        await agent.call("mcp.s.trigger_long_running_operation", duration=0.3, steps=3)
        assert agent.live.tool_events == [("progress", f"{step} of 3") for step in (1, 2, 3)]

        links = await agent.call("mcp.s.get_resource_links", count=2)
        assert links.text.count("Resource ") >= 2
        variables = (await agent.call("mcp.s.get_env")).text
        assert "PYTEST_CURRENT_TEST" not in variables


async def test_files_are_read_and_written_in_the_allowed_folder_only(packages: Path, tmp_path: Path) -> None:
    async with open_agent(server(packages, "filesystem", str(tmp_path))) as agent:
        effects = {tool.spec.tool_id: tool.spec.effect for tool in agent.servers.tools}
        assert (effects["mcp.s.read_text_file"], effects["mcp.s.write_file"], effects["mcp.s.edit_file"]) == (
            Effect.PURE,
            Effect.IDEMPOTENT,
            Effect.IRREVERSIBLE,
        )
        path = str(tmp_path / "a.txt")
        assert (await agent.call("mcp.s.write_file", path=path, content="hello")).status == "ok"
        assert (tmp_path / "a.txt").read_text() == "hello"
        assert (await agent.call("mcp.s.read_text_file", path=path)).text == "hello"
        refused = await agent.call("mcp.s.read_text_file", path="/etc/passwd")
        assert (refused.status, "Access denied" in refused.text) == ("error", True)


async def test_a_graph_is_kept_between_calls(packages: Path, tmp_path: Path) -> None:
    variables = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    async with open_agent(server(packages, "memory", env=variables)) as agent:
        entity = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
        assert (await agent.call("mcp.s.create_entities", entities=[entity])).status == "ok"
        assert (await agent.call("mcp.s.search_nodes", query="programs")).value == {
            "entities": [entity],
            "relations": [],
        }
