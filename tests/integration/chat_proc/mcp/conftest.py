"""Real MCP servers over each of the transports, and one written by hand."""

import sys
from collections.abc import AsyncGenerator, Generator

import pytest
from helpers.mcp_servers import SAMPLE, RawServer, find_port, run_sample

from chat_proc.catalog.mcp_servers import McpServer


@pytest.fixture
def sample_stdio() -> McpServer:
    return McpServer(command=sys.executable, args=(str(SAMPLE), "stdio"))


@pytest.fixture(scope="module")
def sample_url() -> Generator[str]:
    with run_sample(find_port()) as url:
        yield url


@pytest.fixture(params=["stdio", "http"])
def sample(request: pytest.FixtureRequest, sample_stdio: McpServer) -> McpServer:
    """The sample server, over each of the transports; over HTTP all tests of a module share it."""
    return sample_stdio if request.param == "stdio" else McpServer(url=request.getfixturevalue("sample_url"))


@pytest.fixture
async def raw() -> AsyncGenerator[RawServer]:
    async with RawServer().run() as server:
        yield server
