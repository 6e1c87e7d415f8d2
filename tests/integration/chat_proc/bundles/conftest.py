"""Hosts of bundles with real processes."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from chat_proc.bundles.host.environments import Environments
from chat_proc.bundles.host.host import BundleHost, open_bundle_host
from chat_proc.bundles.host.host_process import BundleCode, HostOptions
from chat_proc.bundles.host.section import HostSection
from chat_proc.catalog.tool import Tool, ToolCall, ToolContext, ToolOutcome, ToolRegistry
from chat_proc.tools.hosted import build_hosted_tools
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.stored_files import OWNER
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW
from everturn_testing.turns.live_turn import RecordingTurn

DESCRIPTOR = 'TOOLS_SPECS = [{"ref": "tools/desk.py", "alias": "desk"}]\n'
IMPORTS = "import asyncio, os, sys, threading, time\nfrom everturn_sdk import *\n\n"
UIDS = range(23_000, 24_000)


class OpenedHost:
    """A bundle's host with its tools, which tests call by the names of their functions."""

    def __init__(self, host: BundleHost) -> None:
        self.host = host
        self.objects = MemoryObjects()
        self.pool = MemorySourcePool()
        self.live = RecordingTurn()
        self.tools: dict[str, Tool] = {
            tool.spec.tool_id.partition(".")[2]: tool for tool in build_hosted_tools(host, self.objects, ())
        }

    async def call(self, name: str, /, turn_id: str = "turn_1", **params: Any) -> ToolOutcome:
        tool = self.tools[name]
        checked = ToolRegistry([tool]).check_params(tool.spec.tool_id, params)
        context = ToolContext(OWNER, ConversationId("conv_1"), TurnId(turn_id), 1, (), NOW, self.pool, live=self.live)
        return await tool.run(ToolCall(CallId("call_1"), checked, None, context))


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Workers run on uvloop."""
    return {"uvloop": uvloop.new_event_loop}


OpenHost = Callable[..., Awaitable[OpenedHost]]


@pytest.fixture(scope="session")
def environments_folder() -> Iterator[Path]:
    """Processes of other users read it. Pytest's own folder stays closed to them."""
    with tempfile.TemporaryDirectory(prefix="everturn-environments-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture
def options(environments_folder: Path) -> HostOptions:
    return HostOptions(Environments(environments_folder), uids=UIDS)


@pytest.fixture
async def open_host(options: HostOptions) -> AsyncGenerator[OpenHost]:
    """Opens a bundle with this source of its tools, or with these files, for the test or for a `stack`."""
    async with AsyncExitStack() as whole:

        async def open_one(
            source: str = "",
            *,
            files: Mapping[str, str] | None = None,
            section: HostSection | None = None,
            settings: Mapping[str, Any] | None = None,
            secrets: Mapping[str, str] | None = None,
            described: tuple[Mapping[str, Any], ...] = (),
            stack: AsyncExitStack = whole,
            **changes: Any,
        ) -> OpenedHost:
            texts = files or {"tools_descriptor.py": DESCRIPTOR, "tools/desk.py": IMPORTS + source}
            code = BundleCode(
                "front-desk",
                "0" * 64,
                {name: text.encode() for name, text in texts.items()},
                described=described,
                section=section or HostSection(),
                settings=settings or {},
                secrets=secrets or {},
            )
            return OpenedHost(await stack.enter_async_context(open_bundle_host(code, replace(options, **changes))))

        yield open_one
